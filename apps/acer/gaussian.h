#pragma once

#include <span>

#include "acer/direction.h"
#include "acer/rules.h"

namespace farad::acer {

/// One state that was acted in by amounts, by policies that are Gaussian around their means, with the deviation of the
/// rules. All of it is constant.
struct GaussianSample {
  std::span<const double> mean;       ///< of pi, as it is now
  std::span<const double> behaviour;  ///< the mean of mu, as it was when it acted
  std::span<const double> average;    ///< the mean of the average policy
  std::span<const double> action;     ///< that was taken
  std::span<const double> another;    ///< that was drawn from pi
  double advantage = 0;               ///< of the action, by what came after it
  double another_advantage = 0;       ///< of the other one, as the critic sees it
};

/// pi(action) / mu(action)
double density_ratio(std::span<const double> action, std::span<const double> mean, std::span<const double> behaviour,
                     double deviation);

/// Where the means are to go. The correction for what `c` cuts off is estimated from the one other action.
void find_direction(const GaussianSample& sample, const Rules& rules, Direction& direction);

}  // namespace farad::acer
