#pragma once

#include <vector>

#include "acer/rules.h"

namespace farad::acer {

/// The largest difference of two at the same place; no number if one of them is none.
double largest_gap(const std::vector<double>& values, const std::vector<double>& wanted);

/// By how much targets are off what they are by hand, for a policy that is even everywhere and a critic by which states
/// are worth 4 times what is observed: 1 at each step, and half of it after windows. There are windows of one step and
/// of two, such as end and such as are cut off, and traces that are cut and that are not.
double worst_target(const Rules& rules);

/// The same for amounts: two, everywhere 0 in the mean.
double worst_target_of_amounts(const Rules& rules);

}  // namespace farad::acer
