#include "acer/network.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include <cmath>

namespace farad::acer {

NetworkImpl::NetworkImpl(NetworkShape shape, Random random) : shape_(std::move(shape)) {
  int64_t width = shape_.observation_size;
  for (const int64_t out : shape_.hidden) {
    trunk_.push_back(add("trunk" + std::to_string(trunk_.size()), width, out, 1, random));
    width = out;
  }
  policy_ = add("policy", width, shape_.actions, 0.1, random);
  q_ = add("q", width, shape_.actions, 0.1, random);
}

NetworkImpl::Layer NetworkImpl::add(const std::string& name, int64_t in, int64_t out, double scale, Random& random) {
  const double limit = scale / std::sqrt(static_cast<double>(in));
  const auto filled = [&](at::IntArrayRef sizes) {
    auto tensor = at::empty(sizes);
    auto* values = tensor.data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = static_cast<float>(random.uniform(-limit, limit));
    return tensor;
  };
  auto weight = register_parameter(name + "_weight", filled({out, in}));
  return {weight, register_parameter(name + "_bias", filled({out}))};
}

NetworkImpl::Output NetworkImpl::forward(const at::Tensor& observations) const {
  auto x = observations;
  for (const auto& [weight, bias] : trunk_) x = at::tanh(at::linear(x, weight, bias));
  auto logits = at::linear(x, policy_.weight, policy_.bias);
  auto policy = at::softmax(logits, 1);
  return {std::move(logits), std::move(policy), at::linear(x, q_.weight, q_.bias)};
}

}  // namespace farad::acer
