#pragma once

#include <cstdint>
#include <string>

#include "acer/settings.h"

namespace farad::acer {

/// What gradients of random batches are like whose actions were drawn by the policy itself, by one near it and by one
/// far off it, in double precision. The rules are the settings', but that nothing is cut to a length and that, far off,
/// c and delta are so small that weights are cut, and corrected for, and the trust region acts.
struct InRegimes {
  double off_reference = 0;  ///< the largest relative distance from the reference; infinite if a regime is not as named
  double off_sum = 0;        ///< of the whole, without a trust region, from the sum of the parts that have a weight
  std::string note;          ///< which part of ratios were cut, and of samples bounded, far off the policy
};
/// With that defect in what is compared, and not in the reference.
InRegimes gradients_in_regimes(const Settings& settings, const Spec& spec, Defect defect, uint64_t seed);

}  // namespace farad::acer
