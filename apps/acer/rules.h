#pragma once

#include <farad/fields.h>

#include <cstdint>

namespace farad::acer {

/// In which coordinates the trust region bounds the policy's change. The projection depends on them.
enum class Statistics {
  Probabilities,  ///< as in the paper
  Logits,
};

/// Defects that implementations of ACER have been seen to have. The audit plants them, to show that it would find them.
enum class Defect {
  None,
  KlSign,                ///< the divergence's gradient points the wrong way
  DenominatorG2,         ///< the projection is divided by |g|^2
  BiasAttached,          ///< the correction's weight is differentiated as well
  QTakenOnly,            ///< the correction uses Q of the action taken for every action
  DoneAsTruncation,      ///< what comes after the end of an episode counts
  TruncationAsDone,      ///< what comes after a window that was cut off does not count
  LastStored,            ///< what comes after a window is worth what its last state is, not the one after
  NoRetrace,             ///< targets are the returns of the window, however unlikely its actions are now
  BaselineCut,           ///< where an episode ends next, an advantage is the target less nothing instead of the value
  TakenOnly,             ///< the trust region looks at the action taken alone
  BoundAfterMean,        ///< what the trust region bounds was divided by the steps of the batch before
  TerminalNeverSampled,  ///< the replay never draws the last step of an episode
  PolicyCut,  ///< the policy's term and the entropy are of a tensor beside the graph: only the correction is left
};

/// What decides the gradient of a batch.
struct Rules {
  double discount = 0.99;
  double truncation = 10;  ///< c: of importance weights in the policy gradient; traces are cut at 1
  bool trust_region = true;
  double trust = 1;              ///< delta: what k'z may be, per sample
  double entropy = 1e-3;         ///< weight of the entropy, whose gradient is projected along with the rest
  double critic = 0.5;           ///< weight of half the squared error of the critic
  double largest_gradient = 10;  ///< a longer one is scaled down to that; 0: never
  Statistics statistics = Statistics::Probabilities;
  Defect defect = Defect::None;

  // For amounts alone.
  double deviation = 0.3;         ///< of the policy, which is Gaussian, in each amount; the largest amount is 1
  int64_t advantage_samples = 5;  ///< n: actions that an estimate of Q takes the mean of A over

  FARAD_FIELDS(discount, truncation, trust_region, trust, entropy, critic, largest_gradient, statistics, defect,
               deviation, advantage_samples)
};

}  // namespace farad::acer
