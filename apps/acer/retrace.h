#pragma once

#include <span>

namespace farad::acer {

/// The steps of one window as Retrace sees them, in order.
struct Trace {
  std::span<const double> rewards;
  std::span<const double> q;       ///< of the action taken
  std::span<const double> values;  ///< of the state: the sum of pi(a) Q(a)
  std::span<const double> ratios;  ///< pi(a) / mu(a) of the action taken
  /// What the state after the last step is worth: 0 if the episode ended there, its value if the window or the episode
  /// was merely cut off.
  double after = 0;
};

/// Targets for Q of the actions taken:
///
///     target_i = r_i + discount * (min(1, ratio_{i+1}) * (target_{i+1} - q_{i+1}) + value_{i+1})
///
/// and r + discount * after for the last.
void retrace(const Trace& trace, double discount, std::span<double> targets);

}  // namespace farad::acer
