#pragma once

#include <torch/csrc/autograd/function.h>

#include <utility>
#include <vector>

#include "autograd/engine/node_table.h"
#include "autograd/topology.h"
#include "autograd/torch_compat.h"
#include "base/status.h"

namespace farad::autograd {

/// One worker's part in one pass: its shape, and libtorch's nodes that have it. Made by scan(), constant from then on,
/// so that any thread may read it. It keeps the nodes alive.
struct Plan {
  Topology topology;
  std::vector<torch::autograd::Node*> nodes;  ///< by node
  std::vector<uint32_t> first_input;          ///< by node, and one more: where its inputs begin, of all nodes' inputs
  std::vector<Link> roots;                    ///< where the gradients of the roots go, in their order
  /// Nodes that no gradient may come to, and why; nearly always none. They do nothing where none comes.
  std::vector<std::pair<NodeIndex, base::Status>> barred;

  NodeIndex size() const { return topology.size(); }
  /// Why no gradient may come to that node; ok if it may.
  base::Status why_barred(NodeIndex node) const;
  /// How many inputs the nodes have together.
  uint32_t inputs() const { return first_input.back(); }
  /// Where the gradient that `edge` leads to goes; to nowhere if the pass does not come there.
  Link find(const torch::autograd::Edge& edge) const { return {table.find(edge.function.get()), edge.input_nr}; }

  NodeTable table;
  /// Where the scan came in. All other nodes hang on these; but a leaf holds its own node only weakly, so that a leaf
  /// that is itself a root would lose its node.
  std::vector<compat::NodePtr> entries;
};

}  // namespace farad::autograd
