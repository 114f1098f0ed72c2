#include "audit/builtin.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>

#include <memory>

namespace farad::audit {
namespace {

constexpr int64_t inputs = 6, hidden = 16, outputs = 3;

at::Tensor random(uint64_t seed, at::IntArrayRef sizes, c10::ScalarType type) {
  // Drawn in double precision always, so that both precisions have the same data.
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(c10::ScalarType::Double)).to(type);
}

struct Network {
  at::Tensor weight1, bias1, weight2, bias2;

  Network(uint64_t seed, c10::ScalarType type)
      : weight1(parameter(seed, 1, {hidden, inputs}, type)),
        bias1(parameter(seed, 2, {hidden}, type)),
        weight2(parameter(seed, 3, {outputs, hidden}, type)),
        bias2(parameter(seed, 4, {outputs}, type)) {}

  static at::Tensor parameter(uint64_t seed, uint64_t which, at::IntArrayRef sizes, c10::ScalarType type) {
    return random(shared::stream_seed(seed, which), sizes, type).mul_(0.4).set_requires_grad(true);
  }

  at::Tensor activations(const at::Tensor& x) const { return at::tanh(x.mm(weight1.t()) + bias1); }
  at::Tensor error(const Batch& batch) const {
    return activations(batch.tensors[0]).mm(weight2.t()) + bias2 - batch.tensors[1];
  }
  /// Half the squared error of a sample, on the mean.
  at::Tensor loss(const Batch& batch) const {
    return error(batch).square().sum() / (2.0 * static_cast<double>(batch.samples));
  }

  /// Without autograd.
  std::vector<at::Tensor> gradients_by_hand(const Batch& batch) const {
    const c10::NoGradGuard no_grad;
    const auto active = activations(batch.tensors[0]);
    const auto at_output = error(batch) / static_cast<double>(batch.samples);
    const auto at_hidden = at_output.mm(weight2) * (1 - active * active);
    return {at_hidden.t().mm(batch.tensors[0]), at_hidden.sum(0), at_output.t().mm(active), at_output.sum(0)};
  }
};

Batch make_batch(const Options& options, int worker, uint64_t sequence) {
  const auto samples = static_cast<int64_t>(4 + (static_cast<uint64_t>(worker) + sequence) % 5);
  const uint64_t stream = shared::stream_seed(options.seed, 1000 + static_cast<uint64_t>(worker));
  const auto x = random(shared::stream_seed(stream, sequence), {samples, inputs}, options.dtype);
  return {{x, at::sin(2 * x.narrow(1, 0, outputs)) + x.narrow(1, outputs, outputs)}, samples};
}

Learner make(const Options& options) {
  const auto network = std::make_shared<const Network>(options.seed, options.dtype);
  Learner learner;
  learner.tensors = {{"weight1", network->weight1},
                     {"bias1", network->bias1},
                     {"weight2", network->weight2},
                     {"bias2", network->bias2}};
  learner.batch = [options](int worker, uint64_t sequence) { return make_batch(options, worker, sequence); };
  learner.gradients = [network](const Batch& batch) { network->loss(batch).backward(); };
  learner.loss = [network](const Batch& batch) {
    const c10::NoGradGuard no_grad;
    return network->loss(batch).item<double>();
  };
  reference(learner, [network](const Batch& batch) { return network->gradients_by_hand(batch); });
  return learner;
}

}  // namespace

Training builtin() {
  const farad::detail::OptimizerSettings adam{
      "Adam", {{"lr", 0.01}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0}, {"amsgrad", 0}}};
  Training training("two layers and Adam", make, adam);
  training.moving_average = 0.9;
  return training;
}

}  // namespace farad::audit
