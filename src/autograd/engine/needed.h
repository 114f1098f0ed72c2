#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/topology.h"

namespace farad::autograd {

/// What a pass that is not after all leaves does with a node.
enum class Need : uint8_t {
  Nothing,  ///< nobody wants what it leads to
  Capture,  ///< the gradient that comes to it is wanted, and that is all
  Call,     ///< something that is wanted lies beyond it
};

/// By node, what must be done so that every one of `leaves` and of `captures` gets its gradient. What a recv leads to
/// is known only to its peer, so recvs are always called.
std::vector<Need> find_needed(const Topology& topology, std::span<const NodeIndex> leaves,
                              std::span<const Link> captures);

}  // namespace farad::autograd
