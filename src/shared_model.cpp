#include <farad/error.h>
#include <farad/shared.h>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "net/machine.h"
#include "shared/history.h"
#include "shared_model_state.h"

namespace farad::shared {
namespace {

using Named = detail::NamedTensor;

/// What a new segment is to have for its policy.
Segment::Use use_of(const Options& options) {
  FARAD_CHECK(options.members >= 1 && options.members <= static_cast<int>(most_workers),
              "[shared] Options::members is ", options.members, ": a model has between 1 and ", most_workers,
              " members");
  FARAD_CHECK(options.queue >= 1 && options.queue <= static_cast<int>(most_slots), "[shared] Options::queue is ",
              options.queue, ": a worker may have between 1 and ", most_slots, " gradients waiting");
  const auto slots = [&]() -> uint64_t {
    switch (options.policy) {
      case Policy::Managed:
        return static_cast<uint64_t>(options.queue);
      case Policy::AllReduced:
      case Policy::Averaged:
        return 1;
      default:
        return 0;
    }
  }();
  return {static_cast<uint64_t>(options.policy), slots, static_cast<uint64_t>(options.members)};
}

/// The finisher of SplitMix64, which maps numbers one to one.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// That of MurmurHash3, which maps numbers of half the size one to one.
uint32_t mixed_half(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6b;
  x = (x ^ (x >> 13)) * 0xc2b2ae35;
  return x ^ (x >> 16);
}

}  // namespace

uint64_t stream_seed(uint64_t seed, uint64_t stream) {
  constexpr uint64_t odd = 0x9e3779b97f4a7c15;
  const uint64_t of_seed = mixed(seed + odd);
  const uint64_t upper = mixed(of_seed + stream * odd) >> 32;
  // One to one in the stream, whatever the seed makes of it in between.
  const uint32_t once = mixed_half(static_cast<uint32_t>(stream) + static_cast<uint32_t>(of_seed));
  return upper << 32 | mixed_half(once ^ static_cast<uint32_t>(of_seed >> 32));
}

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Model::State& Model::state() const {
  FARAD_CHECK(state_, "[shared] this model was detached or moved from");
  state_->be_here();
  return *state_;
}

detail::OptimizerSettings Model::plain_sgd() {
  return {"SGD", {{"lr", 0.01}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}, {"nesterov", 0}}};
}

Model Model::create(const std::string& name, std::vector<Named> tensors, detail::OptimizerSettings settings,
                    Options options) {
  FARAD_CHECK(!options.read_only, "[shared] \"", name, "\" is to be created, and Options::read_only is for attach()");
  Broker::check(name).raise();  // Before the system refuses it, which says less.
  const auto use = use_of(options);
  auto state = std::make_unique<State>(name, std::move(tensors), settings, std::move(options));
  Segment::create(name, state->layout, use, state->segment).raise();
  state->header().books.rate.store(settings.options.at("lr"));
  {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < state->bound.size(); ++i) {
      const auto& place = state->layout.places()[i];
      const auto& first = state->bound[i].tensor;
      Segment::view(state->segment, place.offset, place).copy_(first);
      if (place.average != 0) Segment::view(state->segment, place.average, place).copy_(first);
    }
  }
  state->join();
  Broker::offer(name, state->segment, state->broker).raise();
  state->bind_all();
  return Model(std::move(state));
}

Model Model::attach(const Handle& handle, std::vector<Named> tensors, Options options) {
  const auto& name = handle.name;
  FARAD_CHECK(handle.machine.empty() || handle.machine == net::machine_identity(), "[shared] \"", name,
              "\" is a model of another machine or another user, or this one cannot tell which it is (/proc cannot be "
              "read): it is "
              "shared by processes of one");
  std::shared_ptr<Segment> segment;
  std::unique_ptr<Broker> broker;
  const auto deadline = base::deadline_after(base::Clock::now(), options.patience);
  Broker::fetch(name, deadline, segment, broker).raise();
  FARAD_CHECK(handle.identity == 0 || handle.identity == segment->header().identity, "[shared] the model that was \"",
              name, "\" is gone, or has lost its name: another one has it now");
  auto settings = Layout::settings_in(segment->description());
  settings.options["lr"] = segment->header().books.rate.load();
  options.moving_average = Layout::moving_average_in(segment->description());
  options.policy = static_cast<Policy>(segment->header().policy);
  auto state = std::make_unique<State>(name, std::move(tensors), settings, std::move(options));
  const auto difference = state->layout.difference_to(segment->description());
  if (!difference.empty()) throw Error("[shared] \"" + name + "\" is for another module: " + difference);
  state->segment = std::move(segment);
  state->broker = std::move(broker);
  state->join();
  state->bind_all();
  return Model(std::move(state));
}

void Model::detach() {
  auto& here = state();
  std::vector<at::Tensor> values;
  if (here.own) {
    for (const auto& mine : here.views()) values.push_back(mine.clone());
  } else {
    for (auto& [name, tensor] : snapshot().tensors) values.push_back(std::move(tensor));
  }
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < here.bound.size(); ++i) here.bound[i].tensor.set_data(values[i]);
  state_.reset();
}

const std::string& Model::name() const { return state().name; }
Handle Model::handle() const {
  const auto& here = state();
  return {here.name, here.header().identity, net::machine_identity()};
}
Policy Model::policy() const { return state().policy(); }
int Model::worker() const {
  const auto& here = state();
  return here.is_worker() ? static_cast<int>(here.seat) : -1;
}
uint64_t Model::stream() const { return state().stream; }
uint64_t Model::version() const { return state().header().books.version.load(); }
void Model::set_lr(double lr) {
  TORCH_CHECK(lr >= 0, "[shared] ", lr, " is no learning rate");
  // By the lock, else an update that is put back would take it with it.
  auto& here = state();
  here.may_change("set_lr");
  here.writer->alone([&] { here.header().books.rate.store(lr); }, here.deadline()).raise();
}
double Model::lr() const { return state().header().books.rate.load(); }

// --- Reading ---

Model::Snapshot Model::snapshot() {
  auto& here = state();
  Snapshot snapshot;
  std::vector<Reader::Part> parts;
  const auto add = [&](const Layout::Place& place, bool average) {
    auto& tensors = average ? snapshot.average : snapshot.tensors;
    tensors.emplace_back(place.name, at::empty(place.sizes, at::TensorOptions(place.type)));
    parts.push_back(State::part(place, average, tensors.back().second));
  };
  for (const auto& place : here.layout.places()) {
    add(place, false);
    if (place.trained && here.layout.moving_average() > 0) add(place, true);
  }
  const auto seen = here.copy(parts);
  snapshot.version = seen.version;
  snapshot.torn = seen.torn;
  return snapshot;
}

uint64_t Model::pull(std::vector<Named> into, bool average) {
  auto& here = state();
  FARAD_CHECK(!average || here.layout.moving_average() > 0,
              "[shared] this model keeps no moving average: create it with Options::moving_average");
  const auto unique = entries_of(without_doubles(std::move(into)));
  const auto difference = here.layout.difference_to(unique);
  if (!difference.empty()) throw Error("[shared] pull into another module: " + difference);
  for (const auto& one : unique) {
    FARAD_CHECK(one.tensor.layout() == c10::kStrided && !one.tensor.is_meta(), "[shared] pull into \"", one.name,
                "\", a tensor that is sparse or has no memory");
  }
  const c10::NoGradGuard no_grad;
  std::vector<Reader::Part> parts;
  parts.reserve(unique.size());
  std::vector<std::pair<at::Tensor, at::Tensor>>
      elsewhere;  // what does not lie here in one piece, and a copy that does
  for (size_t i = 0; i < unique.size(); ++i) {
    const auto* to = &unique[i].tensor;
    if (!to->device().is_cpu() || !to->is_contiguous()) {
      to = &elsewhere.emplace_back(to->detach(), at::empty(to->sizes(), at::TensorOptions(to->scalar_type()))).second;
    }
    parts.push_back(State::part(here.layout.places()[i], average, *to));
  }
  const auto seen = here.copy(parts);
  for (const auto& one : unique) one.tensor.unsafeGetTensorImpl()->bump_version();  // A graph over it is void now.
  for (const auto& [to, copy] : elsewhere) to.copy_(copy);
  if (!average) here.version_read = seen.version;
  here.pulls = here.pulls || !average;
  return seen.version;
}

// --- What is known ---

Stats Model::stats() const {
  const auto& here = state();
  const auto& header = here.header();
  Stats stats;
  stats.version = header.books.version.load();
  stats.rolled_back = header.rolled_back.load();
  stats.cut_off = header.cut_off.load();
  stats.snapshots = header.snapshots.load();
  stats.snapshot_retries = header.retries.load();
  stats.snapshot_waits = header.waits.load();
  stats.snapshots_torn = header.torn.load();
  stats.discarded = header.discarded.load();
  stats.duplicates = header.duplicates.load();
  stats.members_lost = header.members_lost.load();
  stats.managers_lost = header.managers_lost.load();
  stats.name_lost = here.broker->has_lost_the_name();
  uint64_t applied = 0, begun = 0, in_progress = 0, staleness = 0;
  for (size_t i = 0; i < most_workers; ++i) {
    const auto& seat = header.seats[i];
    const auto& tally = header.books.tallies[i];
    if (seat.started.load() == 0) continue;  // Nobody ever sat there.
    Stats::Worker worker{static_cast<int>(i),
                         static_cast<int>(seat.pid.load()),
                         is_alive(seat),
                         seat.begun.load(),
                         tally.applied.load(),
                         seat.rejected.load(),
                         0,
                         tally.staleness_most.load()};
    if (worker.applied > 0) {
      worker.mean_staleness = static_cast<double>(tally.staleness_sum.load()) / static_cast<double>(worker.applied);
    }
    if (!worker.alive && seat.writing.load() != 0) ++stats.cut_off;
    for (const auto& slot : header.slots[i]) {
      if (here.policy() != Policy::Managed) break;
      stats.waiting += slot.state.load() == SlotState::Ready && slot.sequence.load() > tally.last.load();
      stats.discarded += !worker.alive && slot.state.load() == SlotState::Filling;
    }
    if (worker.alive) {
      stats.waiting += seat.pending.load();
      in_progress += seat.busy.load();
    }
    applied += worker.applied;
    begun += worker.begun;
    stats.rejected += worker.rejected;
    staleness += tally.staleness_sum.load();
    stats.max_staleness = std::max(stats.max_staleness, worker.max_staleness);
    stats.workers.push_back(worker);
  }
  const uint64_t accounted = applied + stats.rejected + stats.waiting + in_progress;
  stats.lost = begun - std::min(begun, accounted);  // While others step these are not all of one instant.
  if (applied > 0) stats.mean_staleness = static_cast<double>(staleness) / static_cast<double>(applied);
  return stats;
}

std::vector<Update> Model::history() const {
  const auto& header = state().header();
  const uint64_t last = header.books.version.load();
  const uint64_t first = last > most_records ? last - most_records + 1 : 1;
  std::vector<Update> updates;
  for (uint64_t version = first; version <= last; ++version) {
    Ticket update;
    if (!look_up(header, version, update)) continue;
    updates.push_back({static_cast<int>(update.seat), update.sequence, update.version_read, version, {}});
  }
  return updates;
}

}  // namespace farad::shared
