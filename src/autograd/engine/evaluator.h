#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/TensorBody.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/engine/accumulate.h"
#include "autograd/engine/device_streams.h"
#include "autograd/engine/input_buffers.h"
#include "autograd/engine/needed.h"
#include "autograd/engine/plan.h"
#include "base/status.h"

namespace farad::autograd {

/// What a pass is to leave behind.
struct EvaluatorOptions {
  bool create_graph = false;   ///< the gradients can be differentiated themselves
  bool retain_graph = false;   ///< nodes keep what they saved of the forward pass; implied by create_graph
  bool deterministic = false;  ///< sums do not depend on the order in which nodes run, only on the plan's numbers
  bool anomaly = false;        ///< look for NaN, as in anomaly mode, whether this process is in it or not
  bool all_leaves = true;      ///< every leaf keeps its gradient; otherwise those of `leaves` only
  std::vector<NodeIndex> leaves = {};
  std::vector<Link> captures = {};  ///< whose gradients are wanted for themselves
  /// That of the thread which called backward, if others run nodes for it. To put a thread into another one's state
  /// costs as much as a small node; who runs nodes in its own has it already.
  std::optional<at::ThreadLocalState> state = {};
};

/// The gradient of one leaf.
struct LeafGradient {
  at::Tensor leaf;
  at::Tensor gradient;
  Ready ready = {};
};

/// Runs the nodes of one worker's part in one pass, each when told to; who tells it sees to their order.
///
/// It does what libtorch's own engine does with a node: hooks, the call, what comes out made to fit where it goes. But
/// a leaf's gradient is kept here and not in the leaf, and a recv's is handed out to be sent.
///
/// One thread at a time, with a Scope around. A node may run another pass: evaluators nest, and several may go over one
/// graph at once. After a failure nothing but its end is of use.
class Evaluator {
 public:
  Evaluator(std::shared_ptr<const Plan> plan, EvaluatorOptions options);

  /// Puts the calling thread into the state in which nodes run: options.state, if there is one; recording only if a
  /// graph is to be created; never in inference mode. Once for as many nodes as are ready, and not for each.
  class Scope {
   public:
    explicit Scope(const Evaluator& evaluator);

   private:
    std::optional<at::ThreadLocalStateGuard> state_;
    std::optional<c10::InferenceMode> no_inference_;
    std::optional<c10::AutoGradMode> recording_;
  };

  /// Adds a gradient from outside to what comes to `to`: of a root, or as the answer to a send.
  base::Status feed(Link to, at::Tensor gradient);

  /// Calls `node` with what has come to it, and passes on what it returns; a leaf keeps it. Once for each node, and
  /// only after all that lead to it. Not for recvs.
  base::Status run(NodeIndex node);

  /// run() in two parts, for a node that somebody else computes: what has come to it, and later what it returns.
  /// `live`: whether that was anything.
  base::Status begin(NodeIndex node, torch::autograd::variable_list& inputs);
  base::Status end(NodeIndex node, const std::function<torch::autograd::variable_list()>& outputs, bool& live);

  /// What has come to the recv `node`, one per tensor, undefined where nothing has; complete. Once for each, instead of
  /// run().
  base::Status take(NodeIndex node, std::vector<at::Tensor>& gradients);

  /// Of the leaves that were run, in this order, where there is any.
  std::vector<LeafGradient> take_gradients() { return std::move(gradients_); }
  /// Adds to what is captured, from outside: the same tensor may be reached by a pass that a node runs.
  void add_captured(size_t place, at::Tensor gradient);
  /// In the order of options.captures, undefined where nothing came. For the calling thread's current streams.
  std::vector<at::Tensor> take_captured();

 private:
  using Node = torch::autograd::Node;
  using variable_list = torch::autograd::variable_list;

  void call_function(NodeIndex index, Node& node);
  void call_leaf(NodeIndex index, compat::AccumulateGrad& leaf);
  void fit_all(NodeIndex index, variable_list& outputs);
  void pass_on(NodeIndex index, variable_list& outputs);
  /// `gradient` is computed by the calling thread's current stream.
  void add(Link to, uint32_t by, at::Tensor gradient);
  /// Moves what has come to the node into inputs_, and lets the hooks of tensors change it.
  template <class AnyNode>
  void collect(NodeIndex index, AnyNode& node);
  void capture(NodeIndex index);
  Need need(NodeIndex index) const { return needs_.empty() ? Need::Call : needs_[index]; }
  base::Status failure(NodeIndex index);

  const std::shared_ptr<const Plan> plan_;
  const EvaluatorOptions options_;
  const std::vector<Need> needs_;  // by node; none at all if every node is to be called
  const DeviceStreams streams_;

  InputBuffers buffers_;
  variable_list inputs_;  // of the node that runs: one list for all saves an allocation each
  std::vector<LeafGradient> gradients_;
  std::vector<at::Tensor> captured_;
  std::vector<Ready> captured_ready_;                   // each when all that was added is
  std::vector<std::pair<NodeIndex, size_t>> captures_;  // nodes in order, each with the place of one of its captures
};

}  // namespace farad::autograd
