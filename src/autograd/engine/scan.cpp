#include "autograd/engine/scan.h"

#include <algorithm>
#include <string>

namespace farad::autograd {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

class Scanner {
 public:
  explicit Scanner(Plan& plan) : plan_(plan), shape_(plan.topology) {
    // A small part then takes its memory once.
    plan_.nodes.reserve(few);
    plan_.first_input.reserve(few + 1);
    shape_.roles.reserve(few);
    shape_.priority.reserve(few);
    shape_.first_link.reserve(few + 1);
    shape_.links.reserve(few);
    shape_.first_link.push_back(0);
    plan_.first_input.push_back(0);
  }

  void enter(const compat::NodePtr& node) {
    number(node.get());
    plan_.entries.push_back(node);
  }

  NodeIndex number(Node* node) {
    const NodeIndex index = plan_.table.find_or_add(node, static_cast<NodeIndex>(plan_.nodes.size()));
    if (index == plan_.nodes.size()) plan_.nodes.push_back(node);
    return index;
  }

  /// The list of nodes is its own queue: each is looked at once, and puts those it leads to at the end.
  base::Status follow_all(const Entries& entries) {
    for (NodeIndex index = 0; index < plan_.nodes.size(); index++) {
      Node* node = plan_.nodes[index];
      for (const Edge& edge : node->next_edges()) {
        if (!edge.is_valid()) {
          shape_.links.push_back({});
        } else if (edge.input_nr < edge.function->num_inputs()) {
          shape_.links.push_back({number(edge.function.get()), edge.input_nr});
        } else {
          return no_such_input(*node, edge);
        }
      }
      shape_.first_link.push_back(static_cast<uint32_t>(shape_.links.size()));
      plan_.first_input.push_back(plan_.first_input.back() + node->num_inputs());
      shape_.priority.push_back(node->sequence_nr());
      if (node->num_outputs() != 0) {
        shape_.roles.push_back(Role::Function);  // Sends are known as such beforehand.
      } else {
        see_end(index, entries);
      }
    }
    return {};
  }

 private:
  static constexpr size_t few = 16;

  static base::Status no_such_input(const Node& node, const Edge& edge) {
    return {base::Code::Invalid, "[autograd] node " + node.name() + " leads to input " + std::to_string(edge.input_nr) +
                                     " of node " + edge.function->name() + ", which has " +
                                     std::to_string(edge.function->num_inputs()) +
                                     ": add_input_metadata() was not called for each of its outputs"};
  }

  /// Only nodes that lead nowhere are leaves or recvs, so that only these are asked what they are.
  void see_end(NodeIndex index, const Entries& entries) {
    Node* node = plan_.nodes[index];
    if (auto* recv = dynamic_cast<RecvNode*>(node)) {
      const Passage& passage = recv->passage();
      if (auto status = is_of(entries, passage); !status.ok()) {
        shape_.roles.push_back(Role::Function);  // Nobody waits for an answer from here.
        plan_.barred.emplace_back(index, std::move(status));
        return;
      }
      shape_.roles.push_back(Role::Recv);
      shape_.recvs.push_back({index, passage.pair, passage.peer, recv->num_inputs()});
    } else {
      const bool leaf = dynamic_cast<compat::AccumulateGrad*>(node);
      shape_.roles.push_back(leaf ? Role::Leaf : Role::Function);
    }
  }

  static base::Status is_of(const Entries& entries, const Passage& passage) {
    if (passage.context != entries.context) {
      return {base::Code::Invalid, "[autograd] backward in context " + std::to_string(entries.context.value) +
                                       " reached the call \"" + passage.call.text() + "\" to or from rank " +
                                       std::to_string(passage.peer.value) + ", which was recorded in context " +
                                       std::to_string(passage.context.value) +
                                       ": detach() what one context takes from another, or record both in one"};
    }
    if (passage.rerun != entries.rerun) {
      return {base::Code::Invalid, "[autograd] the function of a checkpoint, run again, led to the call \"" +
                                       passage.call.text() +
                                       "\" outside of it: a tensor with history that it uses has to be "
                                       "one of its inputs"};
    }
    return {};
  }

  Plan& plan_;
  Topology& shape_;
};

/// The first of the barred nodes that `from` lead to.
base::Status first_barred(const Plan& plan, const std::vector<Link>& from) {
  std::vector<bool> seen(plan.size());
  std::vector<NodeIndex> open;
  const auto see = [&](NodeIndex node) {
    if (node == no_node || seen[node]) return;
    seen[node] = true;
    open.push_back(node);
  };
  for (const Link& link : from) see(link.node);
  while (!open.empty()) {
    const NodeIndex node = open.back();
    open.pop_back();
    if (auto status = plan.why_barred(node); !status.ok()) return status;
    for (const Link& link : plan.topology.links_of(node)) see(link.node);
  }
  return {};
}

}  // namespace

base::Status Plan::why_barred(NodeIndex node) const {
  for (const auto& [each, why] : barred) {
    if (each == node) return why;
  }
  return {};
}

base::Status scan(const Entries& entries, Plan& plan) {
  Scanner scanner(plan);
  plan.entries.reserve(entries.roots.size() + entries.sends.size());
  for (const Edge& root : entries.roots) scanner.enter(root.function);
  for (const auto& send : entries.sends) scanner.enter(send);
  if (auto status = scanner.follow_all(entries); !status.ok()) return status;

  plan.roots.reserve(entries.roots.size());
  for (const Edge& root : entries.roots) plan.roots.push_back(plan.find(root));
  if (!plan.barred.empty()) {  // What fails in any case fails before a node has run, and let go of what it had saved.
    if (auto status = first_barred(plan, plan.roots); !status.ok()) return status;
  }
  plan.topology.sends.reserve(entries.sends.size());
  for (const auto& send : entries.sends) {
    const NodeIndex node = plan.table.find(send.get());
    plan.topology.roles[node] = Role::Send;
    const Passage& passage = send->passage();
    plan.topology.sends.push_back({node, passage.pair, passage.peer, send->num_inputs(), passage.gradient});
  }
  if (entries.recvs.empty()) return {};
  std::vector<PairId> reached;
  reached.reserve(plan.topology.recvs.size());
  for (const Crossing& recv : plan.topology.recvs) reached.push_back(recv.pair);
  std::sort(reached.begin(), reached.end());
  for (const Crossing& recv : entries.recvs) {
    if (std::binary_search(reached.begin(), reached.end(), recv.pair)) continue;
    plan.topology.unreached.push_back(recv);
  }
  return {};
}

}  // namespace farad::autograd
