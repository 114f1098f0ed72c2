#pragma once

#include <memory>
#include <span>

#include "acer/batch.h"
#include "acer/environments/environment.h"
#include "acer/findings.h"
#include "acer/settings.h"

namespace farad::acer {

/// A policy with its critic and its average: how it acts, and what it learns. There is one kind for actions to choose
/// from and one for amounts. One thread.
class Agent {
 public:
  virtual ~Agent() = default;

  /// Values are pulled into these. The network gets gradients, the average does not.
  virtual Module& network() = 0;
  virtual Module& average() = 0;

  /// Acts by the values that the network has now, until the next call.
  virtual void follow_network() = 0;

  struct Decision {
    Action done;                       ///< as the environment takes it
    Action drawn;                      ///< as it is learned from: amounts are in units of the largest one
    std::span<const float> behaviour;  ///< the probabilities, or the means, that it was drawn by
  };
  /// What actions are drawn by there. Stays until the next call.
  virtual std::span<const float> behaviour(std::span<const float> observation) = 0;
  /// By that, or by another one. Amounts stay until the next call.
  virtual Decision draw(std::span<const float> behaviour, Random& random) = 0;
  Decision act(std::span<const float> observation, Random& random) { return draw(behaviour(observation), random); }
  /// What the policy holds to be best: the most probable action, or the means.
  virtual Action act_greedily(std::span<const float> observation) = 0;

  /// At how many actions a gradient looks at each step besides the one taken: what a batch needs noise for.
  virtual int64_t actions_drawn() const = 0;
  /// Sets the gradients of network().
  virtual Findings learn(const Batch& batch) = 0;
};

std::unique_ptr<Agent> make_agent(const Settings& settings, const Spec& spec);

/// The network alone, with new values.
std::shared_ptr<Module> make_network(const NetworkShape& shape, Random random);

/// The index that a number in [0, 1) falls on.
int64_t choose(std::span<const float> probabilities, double at);

}  // namespace farad::acer
