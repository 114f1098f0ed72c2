#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace farad::collectives {

/// How a group comes by a reduction, by its size. All members have to have the same. Why these numbers:
/// docs/design/collectives.md.
struct Algorithms {
  /// From here on each member reduces a slice and hands it out, instead of everybody reducing everything: that moves
  /// 2 (n - 1) / n times the tensor through each member, the least there is, but in two rounds.
  size_t slices_from = 128 << 10;
  /// Of one member's slice in one step; long ones take several steps, so that what is on its way stays in the cache,
  /// and one step's copies go on while another's wait.
  size_t slice_bytes = 512 << 10;

  /// From here on results of slices are written past the cache, which they would not fit into.
  size_t stream_from = 16 << 20;

  /// Of so many members, tensors below that go around by doubling: fewer letters than to each member from each other
  /// one, but one round after the other.
  int doubling_members = 16;
  size_t doubling_below = 4 << 10;

  /// What large tensors go by; if not said, whichever lets the busiest machine send less.
  enum class Large { ByPlace, Slices, Ring };
  Large large = Large::ByPlace;
};

/// Whether a ring through the members, in their order, takes less from the busiest machine than slices do.
/// `machines[i]` is where member i is.
bool ring_is_better(const std::vector<std::string>& machines);

}  // namespace farad::collectives
