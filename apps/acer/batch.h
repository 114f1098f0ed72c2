#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace farad::acer {

/// How a window of steps ends.
enum class Ending : uint8_t {
  Cut,         ///< it goes on: by the length of the window, or by a time limit
  Terminated,  ///< the episode has come to its end
};

/// Steps that follow each other.
struct Window {
  int64_t begin = 0;  ///< its first row
  int64_t length = 0;
  Ending ending = Ending::Cut;
};

/// Windows to learn from: a row for each step, those of a window one after the other.
class Batch {
 public:
  Batch(int64_t observation_size, int64_t actions) : observation_size_(observation_size), actions_(actions) {}

  void clear();
  /// To the window that is being added to. `behaviour`: the probabilities that the action was drawn by.
  void add_step(std::span<const float> observation, int64_t action, double reward, std::span<const float> behaviour);
  /// Ends it. `after`: what was observed after its last step.
  void end_window(Ending ending, std::span<const float> after);

  int64_t observation_size() const { return observation_size_; }
  int64_t actions() const { return actions_; }
  int64_t steps() const { return static_cast<int64_t>(taken_.size()); }
  const std::vector<Window>& windows() const { return windows_; }
  const std::vector<int64_t>& taken() const { return taken_; }
  const std::vector<double>& rewards() const { return rewards_; }
  std::span<const double> behaviour(int64_t row) const;
  /// Of the steps.
  const std::vector<float>& observations() const { return observations_; }
  /// After each window.
  const std::vector<float>& afters() const { return afters_; }

 private:
  const int64_t observation_size_, actions_;
  std::vector<float> observations_, afters_;
  std::vector<int64_t> taken_;
  std::vector<double> rewards_, behaviour_;
  std::vector<Window> windows_;
  int64_t begin_ = 0;
};

}  // namespace farad::acer
