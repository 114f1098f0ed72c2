#include "autograd/engine/run_local.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "autograd/engine/one.h"
#include "autograd/engine/scan.h"

namespace farad::autograd {
namespace {

using torch::autograd::impl::gradient_edge;

/// The nodes that are ready.
class ReadyNodes {
 public:
  explicit ReadyNodes(const Topology& topology) : topology_(topology) {}

  bool empty() const { return heap_.empty(); }
  void push(NodeIndex node) {
    heap_.push_back({topology_.priority[node], node});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  NodeIndex pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const NodeIndex node = heap_.back().node;
    heap_.pop_back();
    return node;
  }

 private:
  struct Entry {
    uint64_t priority;
    NodeIndex node;
  };
  /// Nodes made on several threads can have one priority: then the smaller number goes first.
  static bool later(const Entry& a, const Entry& b) {
    return a.priority != b.priority ? a.priority < b.priority : a.node > b.node;
  }

  const Topology& topology_;
  std::vector<Entry> heap_;
};

void run_all(const Topology& topology, Evaluator& evaluator) {
  std::vector<uint32_t> pending(topology.size());
  for (const Link& link : topology.links) {
    if (link.node != no_node) pending[link.node]++;
  }
  ReadyNodes ready(topology);
  for (NodeIndex node = 0; node < topology.size(); node++) {
    if (pending[node] == 0) ready.push(node);
  }
  while (!ready.empty()) {
    const NodeIndex node = ready.pop();
    if (topology.roles[node] == Role::Recv) {
      std::vector<at::Tensor> unsent;
      evaluator.take(node, unsent).raise();
    } else {
      evaluator.run(node).raise();
    }
    for (const Link& link : topology.links_of(node)) {
      if (link.node != no_node && --pending[link.node] == 0) ready.push(link.node);
    }
  }
}

at::Tensor gradient_of(const at::Tensor& root, const at::Tensor& given) {
  if (given.defined()) return given;
  TORCH_CHECK(root.numel() == 1, "[autograd] a root of shape ", root.sizes(),
              " is no scalar, and needs a gradient of its shape");
  return one_for(root);
}

}  // namespace

LocalResult run_local(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& gradients,
                      const LocalOptions& options) {
  TORCH_CHECK(gradients.empty() || gradients.size() == roots.size(), "[autograd] ", roots.size(), " roots and ",
              gradients.size(), " gradients for them");
  Entries entries;
  for (const auto& root : roots) {
    TORCH_CHECK(root.requires_grad(), "[autograd] a root of shape ", root.sizes(), " requires no gradient");
    entries.roots.push_back(gradient_edge(root));
  }
  auto plan = std::make_shared<Plan>();
  scan(entries, *plan).raise();

  EvaluatorOptions evaluation{.create_graph = options.create_graph,
                              .retain_graph = options.retain_graph,
                              .deterministic = options.deterministic,
                              .all_leaves = options.all_leaves};
  for (const auto& leaf : options.leaves) {
    if (auto link = plan->find(gradient_edge(leaf)); link.node != no_node) evaluation.leaves.push_back(link.node);
  }
  for (const auto& tensor : options.wanted) evaluation.captures.push_back(plan->find(gradient_edge(tensor)));

  Evaluator evaluator(plan, std::move(evaluation));
  const Evaluator::Scope scope(evaluator);
  for (size_t i = 0; i < roots.size(); i++) {
    evaluator.feed(plan->roots[i], gradient_of(roots[i], gradients.empty() ? at::Tensor() : gradients[i])).raise();
  }
  run_all(plan->topology, evaluator);
  auto leaves = evaluator.take_gradients();
  for (const auto& leaf : leaves) leaf.ready.wait_here(leaf.gradient);
  return {std::move(leaves), evaluator.take_captured()};
}

}  // namespace farad::autograd
