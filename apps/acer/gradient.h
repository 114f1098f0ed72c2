#pragma once

#include <vector>

#include "acer/batch.h"
#include "acer/findings.h"
#include "acer/network.h"
#include "acer/pass.h"
#include "acer/rules.h"

namespace farad::acer {

/// Computes gradients of batches, where actions are to be chosen from, by a backward pass from the seeds that ACER's
/// rules make. One thread.
class Gradient {
 public:
  explicit Gradient(const Rules& rules) : rules_(rules) {}

  /// Sets the gradients of `network`'s parameters to those of the mean over the batch's steps, downhill, whatever they
  /// were before. `average` is only read.
  Findings compute(NetworkImpl& network, const NetworkImpl& average, const Batch& batch);

  /// What compute() used for the steps of its batch: Retrace's targets, and each step's direction.
  const std::vector<double>& targets() const { return targets_; }

 private:
  void find_targets(const Batch& batch);
  Sample sample(const Batch& batch, int64_t row) const;

  const Rules rules_;
  Pass pass_;
  // Kept between calls for their memory. Rows of actions, for the steps and then for the states after the windows.
  std::vector<float> seen_;
  std::vector<double> policy_, q_, average_;
  std::vector<double> values_, ratios_, taken_q_, targets_;
  std::vector<double> policy_seeds_, q_seeds_;
  Direction direction_;
};

}  // namespace farad::acer
