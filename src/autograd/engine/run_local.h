#pragma once

#include <ATen/core/TensorBody.h>
#include <torch/csrc/autograd/edge.h>

#include <vector>

#include "autograd/engine/evaluator.h"

namespace farad::autograd {

struct LocalOptions {
  bool create_graph = false;
  bool retain_graph = false;
  bool deterministic = false;
  bool all_leaves = true;  ///< accumulate in every leaf; otherwise in those of `leaves`
  std::vector<at::Tensor> leaves = {};
  std::vector<at::Tensor> wanted = {};  ///< whose gradients to give back, leaves or not
};

struct LocalResult {
  std::vector<LeafGradient> gradients;  ///< of the leaves
  std::vector<at::Tensor> wanted;       ///< in the order of the options; undefined where the roots do not reach
};

/// A whole backward pass over a graph that lies in this process: what a pass is where no call is met. Runs on the
/// calling thread, of the nodes that are ready always the one made last, as libtorch does.
///
/// `gradients`: one for each root, undefined for a scalar's 1. Throws a farad::Error that names the node if one fails.
LocalResult run_local(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& gradients,
                      const LocalOptions& options = {});

}  // namespace farad::autograd
