#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "acer/random.h"

namespace farad::acer {

/// What an environment is like, before it is played.
struct Spec {
  std::string name;
  int64_t observation_size = 0;
  int64_t actions = 0;             ///< how many there are to choose from; 0: actions are amounts
  int64_t amounts = 0;             ///< of how many numbers an action is made then
  double amount_limit = 0;         ///< they are cut to -limit .. limit
  int64_t time_limit = 0;          ///< an episode is cut off after so many steps; 0: never
  double reward_scale = 1;         ///< what brings the rewards of a few dozen steps close to 1, to learn from
  std::optional<double> solved{};  ///< the mean return at which it counts as solved, which a run tells
  /// What observations are about as large as, one by one, where that is far from 1; empty: nowhere.
  std::vector<float> units{};
};

struct Action {
  int64_t choice = 0;
  std::span<const double> amounts{};
};

/// What a step led to, besides an observation.
struct Outcome {
  double reward = 0;
  bool terminated = false;  ///< the episode has come to its end: nothing follows, and nothing is worth anything there
  bool truncated = false;   ///< it was cut off: it could have gone on, and the state keeps its value
  bool over() const { return terminated || truncated; }
};

/// A world that is acted in. To add one: derive from it, and give it a name in registry.cpp.
///
/// Nothing is random but what is drawn from the Random that is given, so that a seed decides an episode.
class Environment {
 public:
  virtual ~Environment() = default;

  const Spec& spec() const { return spec_; }
  /// From now on what is observed is told in the spec's units, to learn from: a network sees little of what is small
  /// beside other things that it sees.
  void observe_in_units() { in_units_ = true; }

  /// Begins an episode; `observation` has room for spec().observation_size numbers.
  void reset(Random& random, std::span<float> observation);
  /// Throws Error if no episode has begun or the last one is over, or if there is no such action.
  Outcome step(const Action& action, Random& random, std::span<float> observation);

  /// All that decides what happens next, so that a saved run goes on exactly. Empty if this cannot be had, as for a
  /// program at the other end of a pipe; such a run begins a new episode, and the last one counts as cut off.
  std::vector<double> save() const;
  /// Gives the observation there.
  void load(std::span<const double> saved, std::span<float> observation);

 protected:
  explicit Environment(Spec spec) : spec_(std::move(spec)) {}

  // What an environment is made of. Time limits are none of its business.
  virtual void begin(Random& random) = 0;
  virtual Outcome advance(const Action& action, Random& random) = 0;
  virtual void observe(std::span<float> observation) const = 0;
  virtual std::vector<double> state() const { return {}; }
  virtual void set_state(std::span<const double> state);

 private:
  void tell(std::span<float> observation) const;

  const Spec spec_;
  int64_t elapsed_ = -1;  // no episode
  bool in_units_ = false;
};

}  // namespace farad::acer
