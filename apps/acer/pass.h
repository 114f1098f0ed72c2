#pragma once

#include <vector>

#include "acer/network.h"
#include "acer/rules.h"

namespace farad::acer {

/// A network's way from rows of observations to its outputs, and the way back, by libtorch's operations but without its
/// graph: of a small network to record one and to walk it takes longer than the arithmetic. The tests compare with what
/// the graph gives. One thread.
class Pass {
 public:
  /// What is given stays until the next call.
  const NetworkImpl::Output& forward(const NetworkImpl& network, const at::Tensor& observations);

  /// Sets the gradients of the parameters, whatever they were, to those that follow from the gradients by the policy's
  /// statistics and by Q at the last forward(), which was of the same network.
  void backward(const NetworkImpl& network, Statistics statistics, const at::Tensor& by_statistics,
                const at::Tensor& by_q) const;

 private:
  std::vector<at::Tensor> inputs_;  // of each layer of the trunk, and its top
  NetworkImpl::Output output_;
};

}  // namespace farad::acer
