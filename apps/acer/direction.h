#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "acer/rules.h"

namespace farad::acer {

/// One state that was acted in. All of it is constant: what is learned from it is a direction for the policy there.
struct Sample {
  std::span<const double> policy;     ///< pi, as it is now
  std::span<const double> behaviour;  ///< mu, as it was when it acted
  std::span<const double> average;    ///< of the policies so far
  std::span<const double> q;
  int64_t action = 0;
  double value = 0;   ///< the sum of pi(a) Q(a)
  double target = 0;  ///< Retrace's, for Q of the action

  double ratio(size_t a) const;
};

/// Where the policy's statistics are to go, in terms of a vector over actions, or over amounts.
struct Direction {
  std::vector<double> wanted;   ///< g: the truncated, corrected policy gradient and that of the entropy, uphill
  std::vector<double> away;     ///< k: of the divergence from the average policy
  std::vector<double> allowed;  ///< z: the nearest to g for which k'z <= delta
  double policy_term = 0;       ///< min(c, ratio) * advantage * log pi(a)
  double correction_term = 0;   ///< what makes up for the truncation
  double entropy = 0;
  double divergence = 0;  ///< KL(average, pi)
  bool bounded = false;   ///< whether z is not g
  double effect = 0;      ///< of the bound on the logits, or on the means: |J(z - g)| / |Jg|
};

/// Sets z, and `bounded`, from g and k: z = g - max(0, (k'g - delta) / |k|^2) k. Gives the factor of k.
double project(const Rules& rules, Direction& direction);

/// Computes all of it, reusing the vectors' memory.
void find_direction(const Sample& sample, const Rules& rules, Direction& direction);

}  // namespace farad::acer
