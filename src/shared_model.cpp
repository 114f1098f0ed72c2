#include <farad/error.h>
#include <farad/shared.h>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "shared/broker.h"
#include "shared/reader.h"
#include "shared/saving.h"
#include "shared/seats.h"
#include "shared/stepper.h"
#include "shared/writer.h"

namespace farad::shared {
namespace {

using Named = detail::NamedTensor;

/// Without those that are there under another name too: they are bound with it.
std::vector<Named> without_doubles(std::vector<Named> tensors) {
  std::set<const void*> seen;
  std::erase_if(tensors, [&](const Named& one) { return !seen.insert(one.tensor.unsafeGetTensorImpl()).second; });
  return tensors;
}

std::vector<Entry> entries_of(const std::vector<Named>& tensors) {
  std::vector<Entry> entries;
  for (const auto& [name, tensor, trained] : tensors) entries.push_back({name, tensor, trained});
  return entries;
}

/// The tensors of the bound module from now on lie at `where`.
void bind(const Named& one, const at::Tensor& where) {
  const c10::NoGradGuard no_grad;
  one.tensor.set_data(where);
}

/// The finisher of SplitMix64, which maps numbers one to one.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t stream_seed(uint64_t seed, uint64_t worker) {
  constexpr uint64_t odd = 0x9e3779b97f4a7c15;
  return mixed(mixed(seed + odd) + worker * odd);
}

struct Model::State {
  State(std::string name, std::vector<Named> tensors, const detail::OptimizerSettings& settings, Options given)
      : name(std::move(name)),
        bound(without_doubles(std::move(tensors))),
        settings(settings),
        options(std::move(given)),
        layout(entries_of(bound), settings, options.moving_average) {}
  ~State() {
    if (segment && process == ::getpid()) leave_seat(segment->header(), seat);
    if (process != ::getpid()) Broker::forget(std::move(broker));
  }

  base::TimePoint deadline() const { return base::deadline_after(base::Clock::now(), options.patience); }
  Header& header() const { return segment->header(); }
  Policy policy() const { return static_cast<Policy>(header().policy); }
  bool locked() const { return policy() != Policy::Hogwild; }

  /// Once the segment is there: this process becomes one of its workers.
  void join() {
    process = ::getpid();
    Writer guest(segment, 0);  // Sits nowhere yet, so it may only use the lock.
    guest.alone([&] { take_seat(header(), seat).raise(); }, deadline()).raise();
    writer.emplace(segment, seat);
    reader.emplace(segment, locked());
    stepper.emplace(segment, layout, settings);
    version_read = header().books.version.load();
  }

  /// A process that was forked off is another worker.
  void be_here() {
    if (process == ::getpid()) return;
    Broker::forget(std::move(broker));
    broker = Broker::stand_by(name, segment);
    join();
  }

  std::vector<at::Tensor> views() const {
    std::vector<at::Tensor> all;
    for (const auto& place : layout.places()) all.push_back(Segment::view(segment, place.offset, place));
    return all;
  }
  /// What of the model goes to a place elsewhere: the values, or the average of the trained ones.
  static Reader::Part part(const Layout::Place& place, bool average, const at::Tensor& to) {
    return {average && place.trained ? place.average : place.offset, place.bytes, to.data_ptr()};
  }
  Reader::Seen copy(const std::vector<Reader::Part>& parts) {
    Reader::Seen seen;
    reader->copy(parts, *writer, deadline(), seen).raise();
    return seen;
  }

  void bind_all() const {
    const auto there = views();
    for (size_t i = 0; i < bound.size(); ++i) bind(bound[i], there[i]);
  }

  const std::string name;
  const std::vector<Named> bound;
  const detail::OptimizerSettings settings;
  const Options options;
  const Layout layout;
  std::shared_ptr<Segment> segment;
  std::unique_ptr<Broker> broker;
  pid_t process = 0;
  uint32_t seat = 0;
  std::optional<Writer> writer;
  std::optional<Reader> reader;
  std::optional<Stepper> stepper;
  uint64_t version_read = 0;
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Model::State& Model::state() const {
  TORCH_CHECK(state_, "[shared] this model was detached or moved from");
  state_->be_here();
  return *state_;
}

detail::OptimizerSettings Model::plain_sgd() {
  return {"SGD", {{"lr", 0.01}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}, {"nesterov", 0}}};
}

Model Model::create(const std::string& name, std::vector<Named> tensors, detail::OptimizerSettings settings,
                    Options options) {
  auto state = std::make_unique<State>(name, std::move(tensors), settings, std::move(options));
  Segment::create(name, state->layout, static_cast<uint64_t>(state->options.policy), state->segment).raise();
  state->header().rate.store(settings.options.at("lr"));
  {
    const c10::NoGradGuard no_grad;
    const auto there = state->views();
    for (size_t i = 0; i < there.size(); ++i) {
      there[i].copy_(state->bound[i].tensor);
      const auto& place = state->layout.places()[i];
      if (place.average != 0) Segment::view(state->segment, place.average, place).copy_(there[i]);
    }
  }
  state->join();
  Broker::offer(name, state->segment, state->broker).raise();
  state->bind_all();
  return Model(std::move(state));
}

Model Model::attach(const std::string& name, std::vector<Named> tensors, Options options) {
  std::shared_ptr<Segment> segment;
  std::unique_ptr<Broker> broker;
  const auto deadline = base::deadline_after(base::Clock::now(), options.patience);
  Broker::fetch(name, deadline, segment, broker).raise();
  auto settings = Layout::settings_in(segment->description());
  settings.options["lr"] = segment->header().rate.load();
  options.moving_average = Layout::moving_average_in(segment->description());
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
  const auto values = snapshot();
  for (size_t i = 0; i < here.bound.size(); ++i) bind(here.bound[i], values.tensors[i].second);
  state_.reset();
}

const std::string& Model::name() const { return state().name; }
Policy Model::policy() const { return state().policy(); }
int Model::worker() const { return static_cast<int>(state().seat); }
uint64_t Model::version() const { return state().header().books.version.load(); }
void Model::set_lr(double lr) { state().header().rate.store(lr); }
double Model::lr() const { return state().header().rate.load(); }

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

uint64_t Model::pull(const std::vector<Named>& into, bool average) {
  auto& here = state();
  TORCH_CHECK(!average || here.layout.moving_average() > 0,
              "[shared] this model keeps no moving average: create it with Options::moving_average");
  const auto unique = without_doubles(into);
  const auto difference = here.layout.difference_to(entries_of(unique));
  if (!difference.empty()) throw Error("[shared] pull into another module: " + difference);
  const c10::NoGradGuard no_grad;
  std::vector<Reader::Part> parts;
  std::vector<std::pair<at::Tensor, at::Tensor>> scattered;  // what does not lie in one piece, and a copy that does
  for (size_t i = 0; i < unique.size(); ++i) {
    auto to = unique[i].tensor.detach();
    if (!to.is_contiguous()) to = scattered.emplace_back(to, at::empty(to.sizes(), to.options())).second;
    parts.push_back(State::part(here.layout.places()[i], average, to));
  }
  const auto seen = here.copy(parts);
  for (const auto& one : unique) one.tensor.unsafeGetTensorImpl()->bump_version();  // A graph over it is void now.
  for (const auto& [to, copy] : scattered) to.copy_(copy);
  if (!average) here.version_read = seen.version;
  return seen.version;
}

// --- Checkpoints ---

void Model::save(const std::string& directory) {
  auto& here = state();
  Image image{std::vector<char>(here.layout.bytes()), 0, lr()};
  const auto seen = here.copy({{0, image.values.size(), image.values.data()}});
  if (seen.torn) throw Error("[shared] checkpoint " + directory + ": other processes step all the time; try again");
  image.version = seen.version;
  save_image(directory, here.layout, here.settings, image).raise();
}

void Model::load(const std::string& directory) {
  auto& here = state();
  Image image;
  load_image(directory, here.layout, here.settings, image).raise();
  const auto put = [&] { std::memcpy(here.segment->values(), image.values.data(), image.values.size()); };
  here.writer->replace(put, image.version, here.deadline()).raise();
  set_lr(image.rate);
  here.version_read = image.version;
}

// --- Writing ---

Update Model::step() { return step_by(state().bound); }

Update Model::step_by(const std::vector<Named>& tensors) {
  std::vector<at::Tensor> gradients;
  for (const auto& one : without_doubles(tensors)) {
    if (one.trained) gradients.push_back(one.tensor.grad());
  }
  return step(std::move(gradients));
}

Update Model::step(std::vector<at::Tensor> gradients) {
  auto& here = state();
  here.stepper->check(gradients);
  const uint64_t read = here.version_read;
  const auto update = [&](const Writer::Done& done) {
    return Update{static_cast<int>(here.seat), done.sequence, read, done.version};
  };
  Writer::Work work{[&] { here.stepper->step(gradients, here.header().rate.load()); }, {}, read};
  if (here.options.observer) {
    work.observe = [&](const Writer::Done& done) { here.options.observer(update(done), gradients); };
  }
  Writer::Done done;
  if (here.locked()) {
    here.writer->locked(work, here.deadline(), done).raise();
  } else {
    done = here.writer->unlocked(work);
  }
  here.version_read = done.version;  // Unless it pulls, what it computes next is from what it sees now.
  return update(done);
}

// --- What is known ---

Stats Model::stats() const {
  const auto& header = state().header();
  Stats stats;
  stats.version = header.books.version.load();
  stats.rolled_back = header.rolled_back.load();
  stats.cut_off = header.cut_off.load();
  stats.snapshots = header.snapshots.load();
  stats.snapshot_retries = header.retries.load();
  stats.snapshots_torn = header.torn.load();
  uint64_t applied = 0, staleness = 0;
  for (size_t i = 0; i < most_workers; ++i) {
    const auto& seat = header.seats[i];
    const auto& tally = header.books.tallies[i];
    if (seat.started.load() == 0) continue;  // Nobody ever sat there.
    Stats::Worker worker{static_cast<int>(i),
                         static_cast<int>(seat.pid.load()),
                         is_alive(seat),
                         seat.begun.load(),
                         tally.applied.load(),
                         0,
                         tally.staleness_most.load()};
    if (worker.applied > 0) {
      worker.mean_staleness = static_cast<double>(tally.staleness_sum.load()) / static_cast<double>(worker.applied);
    }
    if (!worker.alive && seat.writing.load() != 0) ++stats.cut_off;
    applied += worker.applied;
    staleness += tally.staleness_sum.load();
    stats.max_staleness = std::max(stats.max_staleness, worker.max_staleness);
    stats.workers.push_back(worker);
  }
  if (applied > 0) stats.mean_staleness = static_cast<double>(staleness) / static_cast<double>(applied);
  return stats;
}

std::vector<Update> Model::history() const {
  const auto& header = state().header();
  const uint64_t last = header.books.version.load();
  const uint64_t first = last > most_records ? last - most_records + 1 : 1;
  std::vector<Update> updates;
  for (uint64_t version = first; version <= last; ++version) {
    const auto& record = header.records[version % most_records];
    Update update{static_cast<int>(record.worker.load()), record.sequence.load(), record.version_read.load(), version};
    if (record.version.load() == version) updates.push_back(update);  // Else a newer one was written over it.
  }
  return updates;
}

}  // namespace farad::shared
