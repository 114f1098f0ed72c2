#include "acer/pass.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tanh_backward.h>

namespace farad::acer {
namespace {

at::Tensor out_of(const Layer& layer, const at::Tensor& input) {
  return at::addmm(layer.bias, input, layer.weight.t());
}

void set_gradients(const Layer& layer, const at::Tensor& input, const at::Tensor& by_output) {
  layer.weight.mutable_grad() = at::mm(by_output.t(), input);
  layer.bias.mutable_grad() = by_output.sum(0);
}

}  // namespace

const NetworkImpl::Output& Pass::forward(const NetworkImpl& network, const at::Tensor& observations) {
  const NoGraph no_graph;
  inputs_ = {observations};
  for (const auto& layer : network.trunk()) inputs_.push_back(out_of(layer, inputs_.back()).tanh_());
  output_.logits = out_of(network.policy_head(), inputs_.back());
  output_.policy = at::_softmax(output_.logits, 1, false);
  output_.q = out_of(network.q_head(), inputs_.back());
  return output_;
}

void Pass::backward(const NetworkImpl& network, Statistics statistics, const at::Tensor& by_statistics,
                    const at::Tensor& by_q) const {
  const NoGraph no_graph;
  const auto by_logits = statistics == Statistics::Logits ? by_statistics
                                                          : at::_softmax_backward_data(by_statistics, output_.policy, 1,
                                                                                       output_.policy.scalar_type());
  set_gradients(network.policy_head(), inputs_.back(), by_logits);
  set_gradients(network.q_head(), inputs_.back(), by_q);
  auto by_input = at::mm(by_logits, network.policy_head().weight).addmm_(by_q, network.q_head().weight);
  for (size_t i = network.trunk().size(); i-- > 0;) {
    const auto& layer = network.trunk()[i];
    const auto by_output = at::tanh_backward(by_input, inputs_[i + 1]);
    set_gradients(layer, inputs_[i], by_output);
    if (i > 0) by_input = at::mm(by_output, layer.weight);
  }
}

}  // namespace farad::acer
