#include "collectives/algorithms.h"

#include <algorithm>
#include <map>

namespace farad::collectives {

bool ring_is_better(const std::vector<std::string>& machines) {
  const size_t members = machines.size();
  std::map<std::string, size_t> there;  // by machine: how many
  for (const auto& machine : machines) ++there[machine];
  // What leaves each machine. In slices each member sends each other one two slices, of which there are as many as
  // members. In a ring what is reduced goes from each to the next, and the result from the last around to the one
  // before it. Both in units of one slice, so that numbers stay whole.
  std::map<std::string, size_t> by_ring;
  for (size_t i = 0; i < members; ++i) {
    const size_t next = (i + 1) % members;
    if (machines[i] == machines[next]) continue;
    const bool reduces = next != 0, returns = next != members - 1;
    by_ring[machines[i]] += (reduces + returns) * members;
  }
  size_t most_by_ring = 0, most_by_slices = 0;
  for (const auto& [machine, count] : there) {
    most_by_slices = std::max(most_by_slices, 2 * count * (members - count));
    most_by_ring = std::max(most_by_ring, by_ring[machine]);
  }
  return most_by_ring < most_by_slices;
}

}  // namespace farad::collectives
