#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "acer/changes.h"
#include "acer/findings.h"

namespace farad::acer {

/// What is summed up of updates.
enum class Measure : size_t {
  Steps,
  PolicyLoss,
  CorrectionLoss,
  CriticLoss,
  Entropy,
  Divergence,
  Bounded,
  Effect,
  Ratio,
  RatioAbove1,
  RatioAboveC,
  Target,
  TargetSquared,
  Error,
  ErrorSquared,
  GradientNorm,
  ClippedNorm,
  ReplayAge,
  ReplayDraws,
  Count
};
using Measures = std::array<double, static_cast<size_t>(Measure::Count)>;

/// What one worker tells of itself. It alone writes, whoever likes reads; it outlives the process.
struct Tally {
  static constexpr size_t most_episodes = 512;

  std::atomic<int64_t> steps{0}, episodes{0}, on_policy{0}, off_policy{0}, replay_size{0};
  std::array<std::atomic<double>, static_cast<size_t>(Measure::Count)> sums{};
  std::atomic<double> largest_ratio{0};  ///< since somebody last asked
  /// Of the last episodes; the n-th one at n % most_episodes.
  std::array<std::atomic<double>, most_episodes> returns{};
  std::array<std::atomic<int64_t>, most_episodes> lengths{};
  std::array<std::atomic<int64_t>, most_episodes> ends{};  ///< when they were over, by a clock that all processes share
  std::atomic<bool> finished{false};  ///< it has made its share of the steps; only of workers that go in step
  std::atomic<int> life{0};           ///< how many processes it had before the one that it has
  std::atomic<int64_t> saved{0};      ///< the number of the last checkpoint that it has written its part of

  void add(Measure measure, double amount);
  void add(const Findings& findings);
  void add_episode(double sum_of_rewards, int64_t length);
  Measures measures() const;
};

/// In memory that all processes of a training share, from before they were forked.
struct Board {
  static constexpr int most_workers = 62;  ///< a shared model has room for two more: who evaluates, and who looks on

  /// Made by mmap, and there until the last process ends. Throws Error if there is no memory.
  static Board& create();

  std::atomic<bool> stop{false};  ///< all are to end in good order
  std::atomic<bool> over{false};  ///< all workers have ended
  /// Workers that go in step end when the model has this version; 0 = it is not known yet.
  std::atomic<uint64_t> last_version{0};
  std::atomic<int64_t> steps{0};       ///< of all workers
  std::atomic<double> seconds{0};      ///< that it had taken when it was last saved
  std::atomic<int64_t> checkpoint{0};  ///< workers wait while this is more than `resumed`, each with its part saved
  std::atomic<int64_t> resumed{0};
  Changes changes;  ///< announced when one of the last two, or what a worker has saved, changes
  std::array<Tally, most_workers> tallies{};
};

}  // namespace farad::acer
