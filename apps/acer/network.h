#pragma once

#include <torch/nn/pimpl.h>

#include <vector>

#include "acer/layer.h"

namespace farad::acer {

/// What a network has to be like for an environment. One of actions and amounts is 0.
struct NetworkShape {
  int64_t observation_size = 0;
  std::vector<int64_t> hidden{64, 64};
  int64_t actions = 0;
  int64_t amounts = 0;

  int64_t top() const { return hidden.empty() ? observation_size : hidden.back(); }
};

/// For actions to choose from: a trunk of layers with tanh and, on top of it, a policy head and a head for Q of every
/// action.
class NetworkImpl : public Module {
 public:
  /// Values as those of torch::nn::Linear, but of the heads a tenth: the first policy is close to uniform, and the
  /// first Q close to 0.
  NetworkImpl(NetworkShape shape, Random random);

  struct Output {
    at::Tensor logits, policy, q;  ///< rows x actions
  };
  Output forward(const at::Tensor& observations) const;
  /// That alone.
  at::Tensor policy(const at::Tensor& observations) const;

  const NetworkShape& shape() const { return shape_; }
  const std::vector<Layer>& trunk() const { return trunk_; }
  const Layer& policy_head() const { return policy_; }
  const Layer& q_head() const { return q_; }

 private:
  const NetworkShape shape_;
  std::vector<Layer> trunk_;
  Layer policy_, q_;
};
TORCH_MODULE(Network);

}  // namespace farad::acer
