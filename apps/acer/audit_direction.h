#pragma once

#include <cstdint>

#include "acer/rules.h"

namespace farad::acer {

/// By how much directions of random samples break the bound, or are changed otherwise than it demands, relative to
/// their length; no number if one of them is none. By the rules as they are, but that the bound is so tight that it
/// acts; what it bounds is computed here once more, in the statistics of the rules.
double worst_bounded_direction(const Rules& rules, uint64_t seed, bool of_amounts);

/// By how much directions of random samples, before they are bounded, are not the slopes of what they go uphill on
/// while the weights of actions stay what they are: central differences, relative to the direction's length.
double worst_weighted_direction(const Rules& rules, uint64_t seed, bool of_amounts);

}  // namespace farad::acer
