#include "shared_model_state.h"

#include <farad/error.h>

#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace farad::shared {
namespace {

using Named = detail::NamedTensor;

/// Averaged: what optimizers remember is not shared.
bool shares_memories(const Options& options) { return options.policy != Policy::Averaged; }

/// What each process may choose for itself.
const Options& checked(const Options& options) {
  FARAD_CHECK(options.gather >= 1, "[shared] Options::gather is ", options.gather, ", less than 1");
  FARAD_CHECK(options.average_every >= 0, "[shared] Options::average_every is ", options.average_every);
  for (const auto span : {options.patience, options.gather_within, options.wait_for_late}) {
    FARAD_CHECK(span.count() >= 0, "[shared] an option is a time of ", span.count(), " ms");
  }
  return options;
}

std::optional<Layout> own_layout_of(const std::vector<Named>& bound, const detail::OptimizerSettings& settings,
                                    const Options& options) {
  if (shares_memories(options) || options.read_only) return {};
  return Layout(entries_of(bound), settings);
}

}  // namespace

std::vector<Named> without_doubles(std::vector<Named> tensors) {
  std::vector<const void*> seen;
  for (const auto& one : tensors) seen.push_back(one.tensor.unsafeGetTensorImpl());
  std::sort(seen.begin(), seen.end());
  if (std::adjacent_find(seen.begin(), seen.end()) == seen.end()) return tensors;  // As most modules are.
  std::set<const void*> kept;
  std::erase_if(tensors, [&](const Named& one) { return !kept.insert(one.tensor.unsafeGetTensorImpl()).second; });
  return tensors;
}

std::vector<Entry> entries_of(std::vector<Named> tensors) {
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  for (auto& [name, tensor, trained, buffer] : tensors) {
    entries.push_back({std::move(name), std::move(tensor), trained, buffer});
  }
  return entries;
}

Model::State::State(std::string given_name, std::vector<Named> tensors, const detail::OptimizerSettings& by,
                    Options given)
    : name(std::move(given_name)),
      bound(without_doubles(std::move(tensors))),
      settings(by),
      options(checked(given)),
      layout(entries_of(bound), settings, options.moving_average, shares_memories(options)),
      own_layout(own_layout_of(bound, settings, options)) {}

Model::State::~State() {
  if (segment && joined.is_set() && is_worker()) leave_seat(segment->header(), seat);
}

void Model::State::must_be(Policy wanted, const char* what) const {
  FARAD_CHECK(policy() == wanted, "[shared] ", what, ", and this model was created with another one");
}

void Model::State::join() {
  if (!joined.is_set()) version_read = header().books.version.load();
  look_on();
  uint32_t taken = no_seat;
  if (!options.read_only) writer->alone([&] { take_seat(header(), taken).raise(); }, deadline()).raise();
  if (taken != no_seat) {
    try {
      sit(taken);
    } catch (...) {
      leave_seat(header(), taken);
      look_on();
      throw;
    }
  }
  if (joined.is_set()) return;  // It was a reader: its numbers stay those of its stream.
  stream = header().joined.fetch_add(1);
  joined.set();  // Only now: what cannot join tries again, and has nothing to leave.
}

void Model::State::look_on() {
  seat = no_seat;
  has_slots = false;
  own.reset();
  writer.emplace(segment, seat);  // It may only use the lock.
  reader.emplace(segment, policy() != Policy::Hogwild);
}

void Model::State::sit(uint32_t there) {
  seat = there;
  writer.emplace(segment, seat);
  if (own_layout) {
    Segment::create(name + "-own", *own_layout, {.keeps = false}, own).raise();  // What is killed takes it with it.
    renew_own();
  }
  stepper.emplace(home(), home_layout(), settings);
  slots.emplace(segment, layout, own_layout ? Slots::Holds::Values : Slots::Holds::Gradients);
  rounds.emplace(
      segment, seat, *writer, *slots,
      Rounds::Rules{policy() == Policy::AllReduced, own_layout ? options.wait_for_late : std::chrono::milliseconds{0}});
  queue.emplace(segment, seat, *writer, *slots,
                Queue::Batch{static_cast<size_t>(options.gather), options.gather_within});
  last_sequence = my_seat().begun.load();
}

void Model::State::be_here() {
  if (joined.is_set()) return;
  if (!broker || !broker->is_ours()) {
    broker.reset();
    broker = Broker::stand_by(name, segment);
  }
  join();
  if (own_layout) bind_all();  // That of the parent is its own.
}

void Model::State::be_worker(const char* what) {
  may_change(what);
  if (is_worker()) return;
  join();
  if (!is_worker()) {
    throw Error("[shared] " + std::string(what) + ": " + std::to_string(most_workers) + " workers use \"" + name +
                "\" already, so this process can only read it until one of them leaves");
  }
  if (own_layout) bind_all();
}

void Model::State::may_change(const char* what) const {
  FARAD_CHECK(!options.read_only, "[shared] ", what, ": this process has attached to \"", name,
              "\" with Options::read_only");
}

void Model::State::reserve_slots() {
  if (has_slots) return;
  segment->reserve_slots(seat).raise();
  has_slots = true;
}

std::vector<at::Tensor> Model::State::views() const {
  std::vector<at::Tensor> all;
  for (const auto& place : home_layout().places()) all.push_back(Segment::view(home(), place.offset, place));
  return all;
}

void Model::State::bind_all() const {
  const c10::NoGradGuard no_grad;
  const auto there = views();
  for (size_t i = 0; i < bound.size(); ++i) bound[i].tensor.set_data(there[i]);
}

Reader::Part Model::State::part(const Layout::Place& place, bool average, const at::Tensor& to) {
  return {average && place.trained ? place.average : place.offset, place.bytes, to.data_ptr()};
}

Reader::Seen Model::State::copy(const std::vector<Reader::Part>& parts) {
  Reader::Seen seen;
  reader->copy(parts, *writer, deadline(), seen).raise();
  return seen;
}

void Model::State::renew_own() {
  std::vector<Reader::Part> parts;
  const auto there = views();
  for (size_t i = 0; i < there.size(); ++i) parts.push_back(part(layout.places()[i], false, there[i]));
  const auto seen = copy(parts);
  my_seat().pending.store(0);
  samples_of_own = 0;
  brought = {};
  version_read = seen.version;
  samples_seen = seen.samples;
  for (const auto& one : bound) one.tensor.unsafeGetTensorImpl()->bump_version();  // A graph over it is void now.
}

}  // namespace farad::shared
