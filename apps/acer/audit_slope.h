#pragma once

#include <farad/audit.h>

#include "acer/settings.h"

namespace farad::acer {

/// By how much the critic's and the entropy's part of a gradient differ from the slopes of half the critic's squared
/// error, targets being constants, and of the entropy, at 50 parameters, relative to the largest: central differences
/// of what plain loops compute. The policy's part has no such function.
double worst_slope(const audit::Learner& learner, const Settings& settings, uint64_t seed);

/// The same for amounts, where the critic's error is that of Q and that of V, whose target is constant too, and the
/// entropy has no slope.
double worst_slope_of_amounts(const audit::Learner& learner, const Settings& settings, uint64_t seed);

}  // namespace farad::acer
