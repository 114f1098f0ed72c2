#pragma once

#include <torch/csrc/autograd/function.h>

namespace farad::autograd {

/// A node whose call does more than what it returns, so that it is called wherever it is reached, even if nothing that
/// is wanted lies beyond it.
class OpaqueNode : public torch::autograd::Node {
 public:
  using Node::Node;
};

}  // namespace farad::autograd
