#pragma once

#include <cstdint>

#include "acer/agent.h"
#include "acer/settings.h"

namespace farad::acer {

/// What a policy is worth in episodes that nobody learns from.
struct Evaluation {
  struct Returns {
    double mean = 0, least = 0, most = 0;
  };
  int64_t steps = 0;     ///< of the training, when it was asked for
  uint64_t version = 0;  ///< of the parameters that were played with
  Returns greedy;        ///< always what the policy holds to be best
  Returns sampled;
};

/// Plays the settings' number of episodes either way. The seeds are those of no worker, and the same each time, so that
/// evaluations differ by their policies only.
Evaluation evaluate(Agent& agent, const Settings& settings);

/// The life of the process that evaluates: for each number of steps (int64_t) that comes from `requests` it pulls the
/// parameters as they are, plays, writes the policy for BestPolicy and an Evaluation to `results`. Returns when
/// `requests` is closed.
void serve_evaluations(const Settings& settings, shared::Model& model, int requests, int results);

}  // namespace farad::acer
