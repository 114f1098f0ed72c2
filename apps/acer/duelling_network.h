#pragma once

#include <torch/nn/pimpl.h>

#include "acer/network.h"

namespace farad::acer {

/// For amounts: a trunk as a Network has it and, on top of it, the means of a Gaussian policy, the value V of the
/// state, and a layer that also sees an action, for how much better that one is. Of what it says, A, only differences
/// count:
///
///     Q(x, a) is estimated as V(x) + A(x, a) - the mean of A(x, u) over some u drawn from the policy,
///
/// which on average is V(x) for actions drawn from the policy, whatever A is.
class DuellingNetworkImpl : public Module {
 public:
  /// Values as those of torch::nn::Linear, but of the heads a tenth.
  DuellingNetworkImpl(NetworkShape shape, Random random);

  struct Output {
    at::Tensor top;    ///< what advantages() goes on from
    at::Tensor mean;   ///< rows x amounts, within -1 .. 1
    at::Tensor value;  ///< rows
  };
  Output forward(const at::Tensor& observations) const;
  /// A of several actions in each state: rows x count, for actions of rows x count x amounts.
  at::Tensor advantages(const at::Tensor& top, const at::Tensor& actions) const;

  const NetworkShape& shape() const { return shape_; }
  const std::vector<Layer>& trunk() const { return trunk_; }
  const Layer& mean_head() const { return mean_; }
  const Layer& value_head() const { return value_; }
  /// Of what is on top of the trunk, and then the amounts.
  const Layer& advantage_layer() const { return advantage_; }
  /// Without a bias: nothing would ever come of one.
  const Layer& advantage_head() const { return advantage_head_; }

 private:
  const NetworkShape shape_;
  std::vector<Layer> trunk_;
  Layer mean_, value_, advantage_, advantage_head_;
};
TORCH_MODULE(DuellingNetwork);

}  // namespace farad::acer
