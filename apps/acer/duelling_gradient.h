#pragma once

#include <vector>

#include "acer/batch.h"
#include "acer/duelling_network.h"
#include "acer/findings.h"

namespace farad::acer {

/// Computes gradients of batches whose actions are amounts, by libtorch's backward pass, from the seeds that ACER's
/// rules for stochastic duelling networks make:
///
/// - Q of an action is V + A less the mean of A over rules.advantage_samples actions drawn from the policy;
/// - Retrace's targets, for the critic, have traces of the ratio's root of the amounts' degree, cut at 1; those of the
///   policy gradient have traces of 1;
/// - Q follows the error of its targets, and V besides that min(1, ratio) of the same error.
///
/// One thread.
class DuellingGradient {
 public:
  explicit DuellingGradient(const Rules& rules) : rules_(rules) {}

  /// How many actions a batch has to have noise for at each step.
  static int64_t actions_drawn(const Rules& rules) { return rules.advantage_samples + 1; }

  /// Sets the gradients of `network`'s parameters to those of the mean over the batch's steps, downhill, whatever they
  /// were before. `average` is only read.
  Findings compute(DuellingNetworkImpl& network, const DuellingNetworkImpl& average, const Batch& batch);

  /// What the last compute() used: of the critic, and of the policy gradient.
  const std::vector<double>& targets() const { return targets_; }
  const std::vector<double>& policy_targets() const { return policy_targets_; }

 private:
  void choose_actions(const Batch& batch);
  void find_targets(const Batch& batch);

  const Rules rules_;
  // Kept between calls for their memory; a row for each step. Values have those of the states after windows at the end.
  std::vector<double> means_, averages_, values_, advantages_;
  std::vector<double> actions_;  // the one taken, those that A is averaged over, and another one
  std::vector<double> ratios_, roots_, ones_, q_, other_q_, targets_, policy_targets_;
  Direction direction_;
};

}  // namespace farad::acer
