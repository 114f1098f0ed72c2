#pragma once

#include <torch/csrc/autograd/edge.h>

#include <vector>

#include "autograd/crossing_nodes.h"
#include "autograd/engine/plan.h"
#include "base/status.h"

namespace farad::autograd {

/// Where a pass comes into this worker's part of the graph, and what there is to leave it by.
struct Entries {
  ContextId context = {};
  RerunId rerun = {};                             ///< of the context, that which is part of it
  std::vector<torch::autograd::Edge> roots = {};  ///< of what backward was called on, if that was here
  std::vector<compat::Ptr<SendNode>> sends = {};  ///< of the context, up to the start of the pass
  std::vector<Crossing> recvs = {};               ///< of the context, likewise; without nodes, which may be gone
};

/// Finds every node that can be reached from `entries`, and numbers them: first the roots' nodes, then the sends, then
/// breadth first. So the numbers depend on the shape of the graph and the order of the entries, and on nothing else.
///
/// Fails if the roots lead to a call of another context, and names both. What was only sent may lead there too: whether
/// a gradient comes that way is not known yet, so such a call is barred.
base::Status scan(const Entries& entries, Plan& plan);

}  // namespace farad::autograd
