#pragma once

#include <torch/csrc/autograd/function.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "autograd/topology.h"

namespace farad::autograd {

/// Which number a node has. Discovery asks once per edge, and little else of what it does costs anything: so the pairs
/// lie in one array, and a search goes on from where the node's hash points until it meets the node or a gap.
class NodeTable {
 public:
  using Node = torch::autograd::Node;

  NodeTable() : slots_(smallest), shift_(64 - std::countr_zero(smallest)) {}

  /// The number of `node`; if it has none yet, it gets `next`.
  NodeIndex find_or_add(const Node* node, NodeIndex next) {
    Slot* slot = &find_slot(node);
    if (slot->node) return slot->index;
    if (2 * ++used_ > slots_.size()) {
      grow();
      slot = &find_slot(node);
    }
    *slot = {node, next};
    return next;
  }

  /// The number of `node`; no_node if it has none.
  NodeIndex find(const Node* node) const {
    const Slot& slot = const_cast<NodeTable*>(this)->find_slot(node);
    return slot.node ? slot.index : no_node;
  }

 private:
  struct Slot {
    const Node* node = nullptr;
    NodeIndex index = no_node;
  };
  static constexpr size_t smallest = 64;

  Slot& find_slot(const Node* node) {
    // Addresses differ in their middle bits, and multiplication carries these up to where the shift takes them from.
    size_t at = (reinterpret_cast<uintptr_t>(node) * 0x9E3779B97F4A7C15u) >> shift_;
    while (slots_[at].node && slots_[at].node != node) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }

  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    shift_--;
    for (const Slot& slot : old) {
      if (slot.node) find_slot(slot.node) = slot;
    }
  }

  std::vector<Slot> slots_;  // as many as a power of two, at least half of them free
  int shift_;                // leaves as many bits of a hash as it takes to number them
  size_t used_ = 0;
};

}  // namespace farad::autograd
