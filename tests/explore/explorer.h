#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "explore/world.h"

namespace farad::autograd::explore {

/// What became of a search: empty `violation` if every way ends well.
struct Findings {
  std::string violation;
  std::vector<std::string> way;  ///< the steps that lead there
  uint64_t states = 0;           ///< that differ
  uint64_t steps = 0;
  uint64_t ends = 0;
  bool complete = false;  ///< false: given up at `limit` states
};

/// Tries every order of everything that may happen in `world`. States that were seen before are not followed again.
Findings try_all(const World& world, uint64_t limit = 5'000'000);

/// Follows one way, of the seed's choosing; dangers come with a chance of one in a hundred steps.
Findings try_one(const World& world, uint32_t seed);

std::string show(const Findings& findings);

}  // namespace farad::autograd::explore
