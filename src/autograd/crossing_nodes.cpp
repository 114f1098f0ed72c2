#include "autograd/crossing_nodes.h"

#include <farad/error.h>

#include <utility>

namespace farad::autograd {

using torch::autograd::variable_list;

namespace {

torch::autograd::edge_list edges_of(const variable_list& tensors) {
  torch::autograd::edge_list edges;
  edges.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    if (needs_gradient(tensor)) edges.push_back(torch::autograd::impl::gradient_edge(tensor));
  }
  return edges;
}

}  // namespace

SendNode::SendNode(Passage passage, const variable_list& tensors)
    : Node(edges_of(tensors)), passage_(std::move(passage)) {
  for (const auto& tensor : tensors) {
    if (needs_gradient(tensor)) add_input_metadata(tensor);
  }
}

std::string SendNode::name() const {
  return "Send(\"" + passage_.call.text() + "\", rank " + std::to_string(passage_.peer.value) + ")";
}

variable_list SendNode::apply(variable_list&& gradients) { return std::move(gradients); }

RecvNode::RecvNode(Passage passage) : passage_(std::move(passage)) {}

std::string RecvNode::name() const {
  return "Recv(\"" + passage_.call.text() + "\", rank " + std::to_string(passage_.peer.value) + ")";
}

variable_list RecvNode::apply(variable_list&&) {
  throw Error("[autograd] a plain backward() reached the call \"" + passage_.call.text() +
              "\" between this worker and rank " + std::to_string(passage_.peer.value) + ", recorded in context " +
              std::to_string(passage_.context.value) +
              ": the rest of the graph is there; use Context::backward(), which goes on at the peer");
}

void add_history(const compat::Ptr<RecvNode>& node, const at::Tensor& tensor) {
  torch::autograd::impl::set_gradient_edge(tensor, {node, node->add_input_metadata(tensor)});
}

void set_history(const compat::Ptr<RecvNode>& node, const variable_list& tensors) {
  for (const auto& tensor : tensors) add_history(node, tensor);
}

}  // namespace farad::autograd
