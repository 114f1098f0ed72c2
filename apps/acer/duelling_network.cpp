#include "acer/duelling_network.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>

namespace farad::acer {

DuellingNetworkImpl::DuellingNetworkImpl(NetworkShape shape, Random random)
    : shape_(std::move(shape)),
      trunk_(add_trunk(*this, shape_.observation_size, shape_.hidden, random)),
      mean_(add_layer(*this, "mean", shape_.top(), shape_.amounts, 0.1, random)),
      value_(add_layer(*this, "value", shape_.top(), 1, 0.1, random)),
      advantage_(add_layer(*this, "advantage", shape_.top() + shape_.amounts, shape_.top(), 1, random)),
      advantage_head_(add_layer(*this, "advantage_head", shape_.top(), 1, 0.1, random, false)) {}

DuellingNetworkImpl::Output DuellingNetworkImpl::forward(const at::Tensor& observations) const {
  auto top = acer::forward(trunk_, observations);
  auto mean = at::tanh(at::linear(top, mean_.weight, mean_.bias));
  auto value = at::linear(top, value_.weight, value_.bias).squeeze(1);
  return {std::move(top), std::move(mean), std::move(value)};
}

at::Tensor DuellingNetworkImpl::advantages(const at::Tensor& top, const at::Tensor& actions) const {
  // As if each action stood beside the top of its state; but what comes from the state is computed once.
  const int64_t width = top.size(1);
  const auto of_state = at::linear(top, advantage_.weight.narrow(1, 0, width), advantage_.bias);
  const auto of_action = at::linear(actions, advantage_.weight.narrow(1, width, shape_.amounts));
  const auto hidden = at::tanh(of_state.unsqueeze(1) + of_action);
  return at::linear(hidden, advantage_head_.weight).squeeze(2);
}

}  // namespace farad::acer
