#pragma once

#include <vector>

#include "acer/batch.h"
#include "acer/direction.h"
#include "acer/network.h"
#include "acer/rules.h"

namespace farad::acer {

/// What a batch was like, as sums over its steps unless it says otherwise.
struct Findings {
  double steps = 0;
  double policy_loss = 0, correction_loss = 0, critic_loss = 0;
  double entropy = 0, divergence = 0;
  double bounded = 0, effect = 0;  ///< samples that the trust region changed, and by how much
  double ratio = 0, largest_ratio = 0, ratio_above_1 = 0, ratio_above_c = 0;
  double target = 0, target_squared = 0, error = 0, error_squared = 0;  ///< of targets and of targets - Q
  double gradient_norm = 0, clipped_norm = 0;                           ///< of the whole batch
};

/// Computes gradients of batches by libtorch's backward pass, from the seeds that ACER's rules make. One thread.
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
  // Kept between calls for their memory. Rows of actions, for the steps and then for the states after the windows.
  std::vector<double> policy_, q_, average_;
  std::vector<double> values_, ratios_, taken_q_, targets_;
  Direction direction_;
};

/// Scales all gradients so that their length together is at most `largest`, unless that is 0. Gives what it was.
double clip_gradients(const NetworkImpl& network, double largest);

}  // namespace farad::acer
