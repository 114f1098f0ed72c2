#pragma once

#include <farad/shared.h>

#include <cstdint>
#include <string>
#include <vector>

#include "acer/environments/environment.h"
#include "acer/network.h"
#include "acer/rules.h"

namespace farad::acer {

enum class Optimizer { RMSprop, Adam };

/// Defects on the way between a worker and the shared model, under the names by which the audit plants and finds them.
/// A training can be run with one to see how little of it a learning curve shows.
enum class Fault {
  None,
  Accumulate,    ///< gradients are never cleared: each is the sum of all so far
  FreezeFirst,   ///< the first gradient for ever
  StaleAverage,  ///< the average policy is read once and never again
};

/// All that decides a training. What stands here solves CartPole-v1 within some 20,000 steps.
struct Settings {
  std::string environment = "CartPole-v1";
  int workers = 2;
  int64_t steps = 60'000;  ///< of all workers together
  shared::Policy policy = shared::Policy::Locked;
  uint64_t seed = 1;
  std::string out = "out/acer";

  std::vector<int64_t> hidden{64, 64};
  Rules rules;
  int64_t window = 20;               ///< steps of an update, at most
  double replay_ratio = 4;           ///< mean number of updates from the replay after each from what was just done
  int64_t replay_windows = 8;        ///< in each of those
  int64_t replay_capacity = 50'000;  ///< steps of all workers together
  int64_t replay_start = 1'000;      ///< steps of all workers together, before which nothing is replayed
  Optimizer optimizer = Optimizer::RMSprop;
  double learning_rate = 7e-4;
  double reward_scale = 1;  ///< what is learned from is so many times the reward; what is reported is not
  double averaging = 0.99;  ///< of the average policy: how much of it stays at each update

  int64_t evaluate_every = 5'000;  ///< steps; 0: only at the end
  int evaluation_episodes = 20;
  int64_t report_every = 1'000;  ///< steps between rows of metrics
  int64_t checkpoint_every = 0;  ///< steps; 0: only at the end
  bool resume = false;           ///< goes on from the last checkpoint
  Fault inject = Fault::None;
  bool owner = false;  ///< the first of a group of processes keeps the parameters, and the others call it

  FARAD_FIELDS(environment, workers, steps, policy, seed, out, hidden, rules, window, replay_ratio, replay_windows,
               replay_capacity, replay_start, optimizer, learning_rate, reward_scale, averaging, evaluate_every,
               evaluation_episodes, report_every, checkpoint_every, resume, inject, owner)

  int64_t capacity_of_worker() const { return std::max<int64_t>(replay_capacity / workers, 1); }
  int64_t start_of_worker() const { return std::max<int64_t>(replay_start / workers, 1); }
  NetworkShape shape(const Spec& spec) const { return {spec.observation_size, hidden, spec.actions, spec.amounts}; }
};

/// Throws Error if some of it makes no sense, or not together.
void check(const Settings& settings);

/// One "name: value" per line, in JSON, for the file beside the results.
std::string to_json(const Settings& settings);

shared::Policy policy_named(const std::string& name);
std::string name_of(shared::Policy policy);
Fault fault_named(const std::string& name);
std::string name_of(Fault fault);

/// What the numbers of a seed are drawn for. Those of workers follow, some for each life of each.
enum class Stream : uint64_t { Network, Evaluation, Workers = 1024 };
Random random_of(const Settings& settings, Stream stream);
/// `life`: how many processes this worker had before; one that takes over does not act as the one before it did.
Random random_of_worker(const Settings& settings, int worker, int life, int purpose);

}  // namespace farad::acer
