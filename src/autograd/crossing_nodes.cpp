#include "autograd/crossing_nodes.h"

#include <farad/error.h>

#include <utility>

namespace farad::autograd {

using torch::autograd::variable_list;

SendNode::SendNode(Passage passage, const variable_list& tensors)
    : Node(torch::autograd::collect_next_edges(tensors)), passage_(std::move(passage)) {
  for (const auto& tensor : tensors) add_input_metadata(tensor);
}

std::string SendNode::name() const {
  return "Send(\"" + passage_.call + "\", rank " + std::to_string(passage_.peer.value) + ")";
}

variable_list SendNode::apply(variable_list&& gradients) { return std::move(gradients); }

RecvNode::RecvNode(Passage passage) : passage_(std::move(passage)) {}

std::string RecvNode::name() const {
  return "Recv(\"" + passage_.call + "\", rank " + std::to_string(passage_.peer.value) + ")";
}

variable_list RecvNode::apply(variable_list&&) {
  throw Error("[autograd] a plain backward() reached the call \"" + passage_.call + "\" between this worker and rank " +
              std::to_string(passage_.peer.value) + ", recorded in context " + std::to_string(passage_.context.value) +
              ": the rest of the graph is there; use Context::backward(), which goes on at the peer");
}

void set_history(const compat::Ptr<RecvNode>& node, const variable_list& tensors) {
  for (const auto& tensor : tensors) {
    torch::autograd::impl::set_gradient_edge(tensor, {node, node->add_input_metadata(tensor)});
  }
}

}  // namespace farad::autograd
