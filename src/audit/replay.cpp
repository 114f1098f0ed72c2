#include "audit/replay.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "audit/copy.h"
#include "audit/numbers.h"
#include "audit/worker.h"

namespace farad::audit {
namespace {

/// The parameters of one process, libtorch's optimizer over them, and their average.
class Alone {
 public:
  Alone(const Training& training, const Options& options)
      : copy_(training, options),
        optimizer_(optim::make_optimizer(training.optimizer, copy_.trained())),
        rate_(training.optimizer.options.at("lr")),
        keeps_(training.moving_average) {
    for (const auto& tensor : copy_.trained()) average_.push_back(tensor.detach().clone());
  }

  void step(const std::vector<at::Tensor>& gradients) {
    const auto& trained = copy_.trained();
    for (size_t i = 0; i < trained.size(); ++i) trained[i].mutable_grad() = gradients[i];
    optimizer_->step(rate_);
    copy_.clear_gradients();
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < trained.size(); ++i) average_[i].mul_(keeps_).add_(trained[i], 1 - keeps_);
  }
  at::Tensor values() const { return copy_.values(); }
  at::Tensor average() const { return flatten(average_, average_); }

 private:
  Copy copy_;
  const std::unique_ptr<optim::TorchOptimizer> optimizer_;
  const double rate_;
  const double keeps_;
  std::vector<at::Tensor> average_;
};

}  // namespace

Replay replay(const Training& training, const Options& options, const Evidence& evidence) {
  Alone alone(training, options);
  Copy copy(training, options);
  const bool averages = training.moving_average > 0;
  Replay result;
  const auto keep = [&] {
    result.values.push_back(alone.values());
    if (averages) result.averages.push_back(alone.average());
  };
  keep();
  for (const auto& update : evidence.applied) {
    const auto* sent = evidence.find_sent(update.worker, update.sequence);
    if (!sent) continue;
    const auto& read = result.values[std::min<size_t>(sent->version_read, result.values.size() - 1)];
    copy.load(read);
    if (averages && copy.wants_average()) {
      copy.load_average(result.averages[std::min<size_t>(sent->average_read, result.averages.size() - 1)]);
    }
    const auto batch = copy.batch(update.worker, update.sequence);
    result.other_batches += hash(batch.tensors) != sent->batch;
    result.other_values += sent->values.defined() && !same(sent->values, read);
    copy.clear_gradients();
    copy.backward(batch);
    alone.step(copy.gradients());
    keep();
  }
  std::vector<at::Tensor> probe;
  for (const auto& tensor : copy.trained()) probe.push_back(tensor.detach().clone());
  unflatten(probe_gradient(copy.elements(), options.dtype), probe);
  alone.step(probe);
  result.probed = alone.values();
  return result;
}

}  // namespace farad::audit
