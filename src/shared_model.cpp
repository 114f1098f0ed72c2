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

}  // namespace

struct Model::State {
  State(std::string name, std::vector<Named> tensors, const detail::OptimizerSettings& settings, Options options)
      : name(std::move(name)),
        bound(without_doubles(std::move(tensors))),
        settings(settings),
        options(options),
        layout(entries_of(bound), settings) {}
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
  std::vector<char> copy;  // of the values: memory that is new to a process costs more than copying
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
  auto state = std::make_unique<State>(name, std::move(tensors), settings, options);
  Segment::create(name, state->layout, static_cast<uint64_t>(options.policy), state->segment).raise();
  state->header().rate.store(settings.options.at("lr"));
  {
    const c10::NoGradGuard no_grad;
    const auto there = state->views();
    for (size_t i = 0; i < there.size(); ++i) there[i].copy_(state->bound[i].tensor);
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
  auto state = std::make_unique<State>(name, std::move(tensors), settings, options);
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
  here.copy.resize(here.layout.bytes());
  Reader::Seen seen;
  here.reader->copy(here.copy.data(), here.layout.bytes(), *here.writer, here.deadline(), seen).raise();
  Snapshot snapshot{seen.version, seen.torn, {}};
  for (const auto& place : here.layout.places()) {
    auto tensor = at::empty(place.sizes, at::TensorOptions(place.type));
    std::memcpy(tensor.data_ptr(), here.copy.data() + place.offset, place.bytes);
    snapshot.tensors.emplace_back(place.name, std::move(tensor));
  }
  return snapshot;
}

uint64_t Model::pull(const std::vector<Named>& into) {
  auto& here = state();
  const auto unique = without_doubles(into);
  const Layout layout(entries_of(unique), here.settings);
  const auto difference = layout.difference_to(here.layout.description());
  if (!difference.empty()) throw Error("[shared] pull into another module: " + difference);
  const auto values = snapshot();
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < unique.size(); ++i) unique[i].tensor.copy_(values.tensors[i].second);
  here.version_read = values.version;
  return values.version;
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
  const auto change = [&] { here.stepper->step(gradients, here.header().rate.load()); };
  const uint64_t read = here.version_read;
  Writer::Done done;
  if (here.locked()) {
    here.writer->locked(change, read, here.deadline(), done).raise();
  } else {
    done = here.writer->unlocked(change, read);
  }
  here.version_read = done.version;  // Unless it pulls, what it computes next is from what it sees now.
  return {static_cast<int>(here.seat), done.sequence, read, done.version};
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
