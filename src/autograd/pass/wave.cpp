#include "autograd/pass/wave.h"

#include <algorithm>

namespace farad::autograd {

Wave::Wave(std::shared_ptr<const Topology> topology)
    : topology_(std::move(topology)), nodes_(topology_->size()), left_(topology_->size()) {
  for (const auto& link : topology_->links) {
    if (link.node != no_node) ++nodes_[link.node].pending;
  }
  uint32_t tensors = 0;
  send_tensors_.reserve(topology_->sends.size());
  recv_tensors_.reserve(topology_->recvs.size());
  for (uint32_t i = 0; i < topology_->sends.size(); ++i) {
    const auto& send = topology_->sends[i];
    nodes_[send.node].crossing = i;
    ++nodes_[send.node].pending;
    send_tensors_.push_back(tensors);
    tensors += send.tensors;
  }
  for (uint32_t i = 0; i < topology_->recvs.size(); ++i) {
    const auto& recv = topology_->recvs[i];
    nodes_[recv.node].crossing = i;
    nodes_[recv.node].is_recv = 1;
    recv_tensors_.push_back(tensors);
    tensors += recv.tensors;
  }
  tensors_.resize(tensors);
  waiting_.assign(topology_->sends.size(), 1);
}

void Wave::start(std::span<const Link> roots) {
  for (const auto& root : roots) ++nodes_[root.node].pending;  // all of them first: two may lead to one node
  for (const auto& root : roots) reach(root, true);
  // A node that nothing leads to is not there, unless it is a root. If it were, it could not be live.
  for (NodeIndex node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].pending == 0 && nodes_[node].phase == Untouched) make_ready(node);
  }
  fire_silent();
}

void Wave::answer(uint32_t send, std::span<const TensorState> states) {
  waiting_[send] = 0;
  const NodeIndex index = topology_->sends[send].node;
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i] == TensorState::Null) continue;
    tensors_[send_tensors_[send] + i] = 1;
    nodes_[index].live = 1;
  }
  if (--nodes_[index].pending == 0) make_ready(index);
  fire_silent();
}

NodeIndex Wave::next() {
  NodeIndex node = no_node;
  if (next_recv_ < ready_recvs_.size()) {
    node = ready_recvs_[next_recv_++];
    if (next_recv_ == ready_recvs_.size()) {
      ready_recvs_.clear();
      next_recv_ = 0;
    }
  } else if (!heap_.empty()) {
    node = heap_.front().node;
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
  } else {
    return no_node;
  }
  nodes_[node].phase = Out;
  ++running_;
  return node;
}

void Wave::ran(NodeIndex index, bool live) {
  if (index >= nodes_.size() || nodes_[index].phase != Out) return;
  auto& node = nodes_[index];
  node.phase = Fired;
  --left_;
  --running_;
  switch (topology_->roles[index]) {
    case Role::Recv:
      fired_.push_back(node.crossing);
      return;
    case Role::Leaf:
      return;
    case Role::Function:
      for (const auto& link : topology_->links_of(index)) reach(link, live);
      break;
    case Role::Send: {
      const uint8_t* tensor = tensors_.data() + send_tensors_[node.crossing];
      for (const auto& link : topology_->links_of(index)) reach(link, *tensor++);
      break;
    }
  }
  if (!silent_.empty()) fire_silent();
}

std::span<const uint8_t> Wave::tensors_of_recv(uint32_t recv) const {
  return std::span(tensors_).subspan(recv_tensors_[recv], topology_->recvs[recv].tensors);
}

inline void Wave::reach(Link link, bool live) {
  if (link.node == no_node) return;
  auto& node = nodes_[link.node];
  if (live) {
    node.live = 1;
    if (node.is_recv) tensors_[recv_tensors_[node.crossing] + link.input] = 1;
  }
  if (--node.pending == 0) make_ready(link.node);
}

inline void Wave::make_ready(NodeIndex index) {
  auto& node = nodes_[index];
  node.phase = Ready;
  if (!node.live) {
    silent_.push_back(index);
  } else if (node.is_recv) {
    ready_recvs_.push_back(index);
  } else {
    heap_.push_back({topology_->priority[index], index});
    std::push_heap(heap_.begin(), heap_.end());
  }
}

void Wave::fire_silent() {
  while (!silent_.empty()) {
    const NodeIndex index = silent_.back();
    silent_.pop_back();
    nodes_[index].phase = Fired;
    --left_;
    if (nodes_[index].is_recv) {
      fired_.push_back(nodes_[index].crossing);
    } else {
      for (const auto& link : topology_->links_of(index)) reach(link, false);
    }
  }
}

}  // namespace farad::autograd
