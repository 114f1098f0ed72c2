#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/ids.h"

namespace farad::autograd {

/// A node of one worker's part in one pass: its place in the Topology.
using NodeIndex = uint32_t;
constexpr NodeIndex no_node = UINT32_MAX;

enum class Role : uint8_t {
  Function,  ///< computes gradients of its inputs from those of its outputs
  Leaf,      ///< keeps what comes
  Send,      ///< stands for tensors that went to a peer: waits for its answer
  Recv,      ///< stands for tensors that came from a peer: answers it
};

/// Where a gradient goes next: input `input` of `node`. To nowhere (no_node) if none is wanted.
struct Link {
  NodeIndex node = no_node;
  uint32_t input = 0;
};

/// One worker's end of a pair, by the node that stands for it.
struct Crossing {
  NodeIndex node = no_node;
  PairId pair;
  base::Rank peer;
  uint32_t tensors = 0;   ///< how many it carries: the node's inputs
  bool gradient = false;  ///< of a send or an unreached recv: another pass made it, so that nobody called for it
};

/// The shape of one worker's part in one pass: every node that can be reached from the roots and from what was sent.
/// Numbers only. Who runs the nodes knows what they are; who decides which may run does not need to.
struct Topology {
  std::vector<Role> roles;           ///< by node
  std::vector<uint64_t> priority;    ///< by node: of those that are ready the largest goes first
  std::vector<uint32_t> first_link;  ///< by node, and one more: where its links begin
  std::vector<Link> links;           ///< of all nodes, in the order of the nodes' outputs backward
  std::vector<Crossing> sends;       ///< each is also a Link's way in, without being linked to
  std::vector<Crossing> recvs;       ///< those that were reached
  std::vector<Crossing> unreached;   ///< recvs of the context that were not; they have no node

  NodeIndex size() const { return static_cast<NodeIndex>(roles.size()); }
  std::span<const Link> links_of(NodeIndex node) const {
    return std::span(links).subspan(first_link[node], first_link[node + 1] - first_link[node]);
  }
};

}  // namespace farad::autograd
