#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "acer/environments/environment.h"

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
  Batch(int64_t observation_size, int64_t actions, int64_t amounts = 0)
      : observation_size_(observation_size), actions_(actions), amounts_(amounts) {}

  void clear();
  /// To the window that is being added to. `behaviour`: the probabilities, or the means, that the action was drawn by.
  void add_step(std::span<const float> observation, const Action& action, double reward,
                std::span<const float> behaviour);
  /// Ends it. `after`: what was observed after its last step.
  void end_window(Ending ending, std::span<const float> after);

  int64_t observation_size() const { return observation_size_; }
  int64_t actions() const { return actions_; }
  int64_t amounts() const { return amounts_; }
  int64_t steps() const { return static_cast<int64_t>(rewards_.size()); }
  const std::vector<Window>& windows() const { return windows_; }
  /// Of each step: which action was taken or, where those are amounts, a row of them.
  const std::vector<int64_t>& taken() const { return taken_; }
  std::span<const double> taken_amounts(int64_t row) const;
  const std::vector<double>& rewards() const { return rewards_; }
  std::span<const double> behaviour(int64_t row) const;
  /// Of the steps.
  const std::vector<float>& observations() const { return observations_; }
  /// After each window.
  const std::vector<float>& afters() const { return afters_; }

  /// Draws, for each step, what `count` actions are away from the policy's means, in its deviations: the batch says
  /// which actions its gradient looks at, so that nothing in there is left to chance.
  void draw_noise(int64_t count, Random& random);
  /// Of a step: count x amounts numbers.
  std::span<const double> noise(int64_t row) const;
  /// As it is, of all steps.
  const std::vector<double>& noise() const { return noise_; }
  void set_noise(std::vector<double> noise) { noise_ = std::move(noise); }

 private:
  const int64_t observation_size_, actions_, amounts_;
  std::vector<float> observations_, afters_;
  std::vector<int64_t> taken_;
  std::vector<double> rewards_, behaviour_, taken_amounts_, noise_;
  std::vector<Window> windows_;
  int64_t begin_ = 0;
};

}  // namespace farad::acer
