#include "audit/worker.h"

#include <ATen/ops/arange.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

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
        applier_(make_applier(training_, options_, model_, bound_.trained(), board_,
                              [this](const shared::Update& update, const Gradients& used) { record(update, used); })) {}

  void run() {
    look_at_memory();
    for (int i = 1; i <= options_.rounds; ++i) round(static_cast<uint64_t>(i));
    if (pending_) apply(pending_->sequence, pending_->gradients, pending_->samples);
    finish();
  }

 private:
  struct Pending {
    uint64_t sequence;
    Gradients gradients;
    int64_t samples;
  };

  bool injected(const char* fault) const { return options_.inject == fault; }

  /// Worker 0 makes the model, the others find it by its name.
  shared::Model join(const std::string& name) {
    shared::Options how;
    how.policy = policy_of(options_);
    how.patience = options_.patience;
    how.moving_average = training_.moving_average;
    if (model_observes(options_)) {
      how.observer = [this](const shared::Update& update, const Gradients& used) { record(update, used); };
    }
    if (number_ != 0) board_.meet(turn_);
    auto model = number_ == 0 ? shared::Model::create(name, bound_.tensors(), settings_for(training_, options_), how)
                              : shared::Model::attach(name, bound_.tensors(), how);
    if (number_ == 0) board_.meet(turn_);
    return model;
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
  }

  void read() {
    version_read_ = model_.pull(local_.tensors());
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
    if (sequence == 1) board_.first_gradient(number_).copy_(flatten(gradients, local_.trained()));
    if (!board_.in_sample(number_, sequence)) return;
    board_.read_values(number_, sequence).copy_(local_.values());
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
    applier_->apply(gradients, samples);
  }

  /// Called where the optimizer has just used the gradients.
  void record(const shared::Update& update, const Gradients& used) {
    if (applying_ == 0) return;  // The probe is not one of the training's.
    auto& row = board_.append();
    row.worker = number_;
    row.sequence = applying_;
    row.version = update.version;
    row.gradient = hash(used);
    const auto flat = flatten(used, local_.trained());
    row.finite = all_finite(flat);
    if (!board_.in_sample(number_, applying_)) return;
    row.slot = board_.take_slot();
    if (row.slot != 0) board_.applied_gradient(row.slot).copy_(flat);
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
    if (number_ == 0) {
      const auto stats = model_.stats();
      auto& ended = board_.ended();
      ended.version = stats.version;
      for (const auto& worker : stats.workers) ended.applied += worker.applied;
      ended.snapshots = stats.snapshots;
      ended.torn = stats.snapshots_torn;
      board_.last().copy_(values_now());
      if (training_.moving_average > 0) {
        if (!injected("stale-average")) read_average();
        board_.last_average().copy_(average_);
      }
      applying_ = 0;
      Gradients probe;
      for (const auto& tensor : local_.trained()) probe.push_back(tensor.detach().clone());
      unflatten(probe_gradient(local_.elements(), options_.dtype), probe);
      applier_->apply(probe, 1);
      board_.probed().copy_(values_now());
    }
    board_.meet(turn_);
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
  Gradients first_;
  std::optional<Pending> pending_;
};

}  // namespace

shared::Policy policy_of(const Options& options) {
  return options.inject == "no-lock" ? shared::Policy::Hogwild : options.policy;
}

at::Tensor probe_gradient(int64_t elements, c10::ScalarType type) {
  return at::arange(elements, at::TensorOptions(type)).remainder(7).sub(3).mul(0.01);
}

void work(int worker, const Setup& setup) { Worker(worker, setup).run(); }

}  // namespace farad::audit
