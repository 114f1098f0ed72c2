#include "acer/network.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/softmax.h>

namespace farad::acer {

NetworkImpl::NetworkImpl(NetworkShape shape, Random random)
    : shape_(std::move(shape)),
      trunk_(add_trunk(*this, shape_.observation_size, shape_.hidden, random)),
      policy_(add_layer(*this, "policy", shape_.top(), shape_.actions, 0.1, random)),
      q_(add_layer(*this, "q", shape_.top(), shape_.actions, 0.1, random)) {}

NetworkImpl::Output NetworkImpl::forward(const at::Tensor& observations) const {
  const auto top = acer::forward(trunk_, observations);
  auto logits = at::linear(top, policy_.weight, policy_.bias);
  auto policy = at::softmax(logits, 1);
  return {std::move(logits), std::move(policy), at::linear(top, q_.weight, q_.bias)};
}

at::Tensor NetworkImpl::policy(const at::Tensor& observations) const {
  return at::softmax(at::linear(acer::forward(trunk_, observations), policy_.weight, policy_.bias), 1);
}

}  // namespace farad::acer
