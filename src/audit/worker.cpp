#include "audit/worker.h"

#include <ATen/ops/arange.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "audit/appliers.h"
#include "audit/copy.h"
#include "audit/memory_map.h"
#include "audit/numbers.h"

namespace farad::audit {
namespace {

/// Where the optimizer has just used the gradients, in whichever process that is.
void write_down_applied(Board& board, const std::vector<Board::PartRow>& parts, uint64_t version, const Gradients& used,
                        const Gradients& shapes) {
  auto& row = board.append();
  row.count = static_cast<int>(parts.size());
  std::copy(parts.begin(), parts.end(), row.parts);
  row.version = version;
  row.gradient = hash(used);
  const auto flat = flatten(used, shapes);
  row.finite = all_finite(flat);
  const bool first = parts.front().sequence == 1;  // Those of all workers are added up, and compared with one process.
  if (!first && !board.in_sample(parts.front().worker, parts.front().sequence)) return;
  row.slot = board.take_slot();
  if (row.slot != 0) board.applied_gradient(row.slot).copy_(flat);
}

/// One that was made of several.
void write_down_applied(Board& board, const shared::Update& update, const Gradients& used, const Gradients& shapes) {
  if (used.empty()) return;  // An average of copies, which is not one of gradients.
  std::vector<Board::PartRow> parts;
  for (const auto& one : update.contributions) {
    const int worker = board.worker_at(one.worker);
    const uint64_t sequence = board.delivered(worker, one.sequence);
    if (sequence == 0) return;  // The probe.
    parts.push_back({worker, sequence, one.samples});
  }
  write_down_applied(board, parts, update.version, used, shapes);
}

class Worker {
 public:
  Worker(int number, const Setup& setup)
      : number_(number),
        training_(setup.training),
        options_(setup.options),
        board_(setup.board),
        local_(training_, options_),
        bound_(training_, options_),
        model_(join(setup.model)),
        applier_(make_applier(number_, training_, options_, model_, bound_.trained(), board_, observer())) {}

  void run() {
    look_at_memory();
    for (int i = 1; i <= options_.rounds; ++i) round(static_cast<uint64_t>(i));
    if (pending_) apply(pending_->sequence, pending_->gradients, pending_->samples);
    if (manages()) model_.settle();
    if (averages() && options_.rounds % options_.average_every != 0) model_.average();
    finish();
  }

 private:
  struct Pending {
    uint64_t sequence;
    Gradients gradients;
    int64_t samples;
  };

  bool injected(const char* fault) const { return options_.inject == fault; }
  bool averages() const { return options_.policy == shared::Policy::Averaged; }
  bool manages() const { return options_.policy == shared::Policy::Managed; }

  /// Worker 0 makes the model, the others find it by its name.
  shared::Model join(const std::string& name) {
    auto how = model_options({training_, options_, board_, name});
    if (model_observes(options_)) how.observer = observer();
    std::optional<shared::Model> model;
    for (int i = 0; i < options_.workers; ++i) {  // In order, in which copies are added up when they are averaged.
      if (i == number_) {
        model = i == 0 ? shared::Model::create(name, bound_.tensors(), settings_for(training_, options_), how)
                       : shared::Model::attach(name, bound_.tensors(), how);
      }
      board_.meet(turn_);
    }
    board_.joined(number_).seat = model->worker();
    return std::move(*model);
  }

  shared::Observer observer() {
    return [this](const shared::Update& update, const Gradients& used) {
      if (!update.contributions.empty()) return write_down_applied(board_, update, used, local_.trained());
      if (applying_ == 0) return;  // The probe is not one of the training's.
      write_down_applied(board_, {{number_, applying_, 1}}, update.version, used, local_.trained());
    };
  }

  /// Do all have the same memory? Worker 0 writes into its parameters, the others look into theirs.
  void look_at_memory() {
    auto& seen = board_.joined(number_);
    const auto& parameter = bound_.trained().front();
    const auto file = file_behind(parameter.data_ptr());
    seen.device = file.device;
    seen.inode = file.inode;
    auto* const place = static_cast<char*>(parameter.data_ptr());
    const size_t bytes = std::min(sizeof seen.canary, parameter.nbytes());
    char before[sizeof seen.canary];
    board_.meet(turn_);
    if (number_ == 0) {
      board_.ended().canary = (options_.seed + 1) * 0x9e3779b97f4a7c15 >> (8 * (sizeof seen.canary - bytes));
      std::memcpy(before, place, bytes);
      std::memcpy(place, &board_.ended().canary, bytes);
    }
    board_.meet(turn_);
    std::memcpy(&seen.canary, place, bytes);
    board_.meet(turn_);
    if (number_ == 0) std::memcpy(place, before, bytes);
    board_.meet(turn_);
  }

  void round(uint64_t sequence) {
    if (sequence == 1 || !injected("no-resync")) read();
    if (sequence == 1 && injected("other-start")) local_.load(local_.values() + 0.01 * number_);
    if (sequence == 1) {
      board_.joined(number_).values = hash(local_.values());
      board_.meet(turn_);  // All begin with the gradient of the same version.
    }
    if (!injected("accumulate")) local_.clear_gradients();
    const auto batch = local_.batch(injected("same-seed") ? 0 : number_, sequence);
    local_.backward(batch);
    write_down(sequence, batch);
    deliver(sequence, local_.gradients(), batch.samples);
    if (!injected("accumulate")) poison();
    if (manages() && sequence == 1) let_the_first_be_one();
  }

  /// The manager begins when all have brought their first one, and nobody brings a second before those are applied.
  void let_the_first_be_one() {
    board_.counter(Board::Began).fetch_add(1);
    board_.meet(turn_);
    model_.settle();
  }

  void read() {
    if (averages()) {  // Its own copy is what it trains.
      version_read_ = model_.version();
      local_.load(bound_.values());
    } else {
      version_read_ = model_.pull(local_.tensors());
    }
    if (training_.moving_average == 0 || (average_.defined() && injected("stale-average"))) return;
    read_average();
    if (local_.wants_average()) local_.load_average(average_);
  }

  void read_average() {
    const auto snapshot = model_.snapshot();
    Gradients parts;
    for (const auto& [name, tensor] : snapshot.average) parts.push_back(tensor);
    average_ = flatten(parts, parts);
    average_version_ = snapshot.version;
  }

  void write_down(uint64_t sequence, const Batch& batch) {
    const auto gradients = local_.gradients();
    auto& row = board_.sent(number_, sequence);
    row = {true, version_read_, average_version_, hash(batch.tensors), hash(gradients), batch.samples};
    if (!board_.in_sample(number_, sequence)) return;
    board_.read_values(number_, sequence).copy_(local_.values());
    board_.sent_gradient(number_, sequence).copy_(flatten(gradients, local_.trained()));
    if (average_.defined()) board_.read_average(number_, sequence).copy_(average_);
  }

  void deliver(uint64_t sequence, const Gradients& gradients, int64_t samples) {
    if (injected("drop-worker") && number_ == options_.workers - 1) return;
    if (injected("freeze-first")) {
      if (first_.empty()) {
        for (const auto& one : gradients) first_.push_back(one.defined() ? one.clone() : one);
      }
      return apply(sequence, first_, samples);
    }
    if (injected("alias-after-send")) {  // What is sent is used later, and is the worker's own until then.
      if (pending_) apply(pending_->sequence, pending_->gradients, pending_->samples);
      pending_ = Pending{sequence, gradients, samples};
      return;
    }
    apply(sequence, gradients, samples);
    if (injected("duplicate") && number_ == 0 && sequence == 2) apply(sequence, gradients, samples);
  }

  void apply(uint64_t sequence, const Gradients& gradients, int64_t samples) {
    applying_ = sequence;
    board_.delivered(number_, ++deliveries_) = sequence;
    applier_->apply(gradients, samples);
  }

  /// Whoever still uses what was sent will have it in his numbers.
  void poison() {
    const c10::NoGradGuard no_grad;
    for (const auto& gradient : local_.gradients()) {
      if (gradient.defined()) gradient.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }

  void finish() {
    board_.meet(turn_);
    if (number_ == 0) sum_up();
    board_.meet(turn_);
    // Under AllReduced all have to take part, and those of the others have no weight; under Averaged each has an
    // optimizer of its own.
    if (number_ == 0 || options_.policy == shared::Policy::AllReduced || averages()) probe();
    board_.meet(turn_);
    board_.counter(Board::Done).store(1);
  }

  void sum_up() {
    const auto stats = model_.stats();
    auto& ended = board_.ended();
    ended.version = stats.version;
    for (const auto& worker : stats.workers) ended.applied += worker.applied;
    board_.last().copy_(values_now());
    if (training_.moving_average == 0) return;
    if (!injected("stale-average")) read_average();
    board_.last_average().copy_(average_);
  }

  void probe() {
    applying_ = 0;
    board_.delivered(number_, ++deliveries_) = 0;
    Gradients parts;
    for (const auto& tensor : local_.trained()) parts.push_back(tensor.detach().clone());
    unflatten(probe_gradient(local_.elements(), options_.dtype), parts);
    applier_->apply(parts, number_ == 0 || averages() ? 1 : 0);
    if (manages()) model_.settle();
    if (averages()) {
      board_.probed(number_).copy_(bound_.values());
    } else if (number_ == 0) {
      board_.probed().copy_(values_now());
    }
  }

  at::Tensor values_now() {
    local_.clear_gradients();
    model_.pull(local_.tensors());
    return local_.values();
  }

  const int number_;
  const Training& training_;
  const Options& options_;
  Board& board_;
  uint32_t turn_ = 0;
  Copy local_;  // What gradients are computed with.
  Copy bound_;  // What lies in shared memory.
  shared::Model model_;
  const std::unique_ptr<Applier> applier_;

  uint64_t version_read_ = 0;
  at::Tensor average_;  // Flat, as it was read last.
  uint64_t average_version_ = 0;
  uint64_t applying_ = 0;
  uint64_t deliveries_ = 0;
  Gradients first_;
  std::optional<Pending> pending_;
};

}  // namespace

shared::Options model_options(const Setup& setup) {
  const auto& options = setup.options;
  shared::Options how;
  how.policy = options.inject == "no-lock" ? shared::Policy::Hogwild : options.policy;
  how.patience = options.patience;
  how.moving_average = setup.training.moving_average;
  how.members = options.workers;
  how.average_every = options.average_every;
  how.gather = options.workers;
  return how;
}

void manage(const Setup& setup) {
  Copy bound(setup.training, setup.options);
  auto how = model_options(setup);
  how.observer = [&](const shared::Update& update, const Gradients& used) {
    write_down_applied(setup.board, update, used, bound.trained());
  };
  auto model = shared::Model::attach(setup.model, bound.tensors(), how);
  const auto all = static_cast<uint64_t>(setup.options.workers);
  while (setup.board.counter(Board::Began).load() < all) ::sched_yield();
  while (setup.board.counter(Board::Done).load() == 0) model.manage(std::chrono::milliseconds(5));
}

at::Tensor probe_gradient(int64_t elements, c10::ScalarType type) {
  return at::arange(elements, at::TensorOptions(type)).remainder(7).sub(3).mul(0.01);
}

void work(int worker, const Setup& setup) { Worker(worker, setup).run(); }

}  // namespace farad::audit
