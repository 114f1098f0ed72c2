#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <vector>

#include "acer/batch.h"
#include "acer/environments/environment.h"
#include "acer/random.h"

namespace farad::acer {

/// The last steps of one worker, to be learned from again.
class Replay {
 public:
  /// `misses_ends`: a defect that the audit plants, for which the last steps of episodes are never drawn.
  Replay(int64_t capacity, int64_t observation_size, int64_t actions, int64_t amounts = 0, bool misses_ends = false);

  /// `after`: what was observed after the step, also where the episode was over then.
  void add(std::span<const float> observation, const Action& action, std::span<const float> behaviour,
           const Outcome& outcome, std::span<const float> after);

  /// The episode of the last step does not go on, if it was not over anyway: what comes next is another one's.
  void cut_off();

  /// How many steps there are.
  int64_t size() const { return size_; }
  int64_t capacity() const { return capacity_; }

  /// Adds a window to the batch: it begins at any of the steps, all equally likely, the last of an episode included,
  /// and goes on for `length` steps unless the episode or what is known ends before. Gives how many steps ago it began.
  int64_t draw(int64_t length, Random& random, Batch& batch) const;

  void save(std::ostream& out) const;
  /// What save() wrote, of a replay of the same sizes.
  void load(std::istream& in);

 private:
  enum class Over : uint8_t { No, Terminated, Truncated };

  size_t slot(int64_t step) const { return static_cast<size_t>(step % capacity_); }
  template <class Value>
  std::span<const Value> row(const std::vector<Value>& rows, int64_t step, int64_t width) const {
    return {rows.data() + slot(step) * static_cast<size_t>(width), static_cast<size_t>(width)};
  }
  template <class Value>
  void put(std::span<const Value> values, std::vector<Value>& rows, int64_t width) const;

  const int64_t capacity_, observation_size_, amounts_;
  const int64_t behaviour_size_;
  const bool misses_ends_;
  int64_t added_ = 0, size_ = 0;
  std::vector<float> observations_, afters_, behaviours_;
  std::vector<int64_t> taken_;
  std::vector<double> taken_amounts_, rewards_;
  std::vector<Over> overs_;
};

}  // namespace farad::acer
