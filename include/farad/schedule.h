#pragma once

#include <farad/optim.h>

#include <cstdint>
#include <functional>

namespace farad {

/// What the learning rate is multiplied by after that many steps.
using RateFactor = std::function<double(int64_t steps)>;

/// `factor` once more after every `every` steps.
RateFactor step_decay(int64_t every, double factor);
/// From 1 down to `least` along half a cosine, over that many steps, and `least` from then on.
RateFactor cosine_decay(int64_t steps, double least = 0);
/// From `first` up to 1 along a line, over that many steps; then `next`, which begins to count there.
RateFactor linear_warm_up(int64_t steps, double first, RateFactor next = {});

/// Sets the learning rates of an optimizer as steps go by; of each parameter group in proportion to the rate of its
/// options, or to what set_lr() has set since. A checkpoint that is loaded changes nothing about that: say by resume()
/// after how many steps it was saved. `optimizer` must outlive it. One thread, which is the one that steps.
///
///     farad::Schedule schedule(optimizer, farad::linear_warm_up(100, 0.01, farad::cosine_decay(10'000)));
///     ...
///     optimizer.step(context);
///     schedule.step();
class Schedule {
 public:
  Schedule(AnyOptimizer& optimizer, RateFactor factor);

  /// After each step of the optimizer.
  void step() { resume(steps_ + 1); }
  int64_t steps() const { return steps_; }
  /// As after that many steps.
  void resume(int64_t steps);

 private:
  AnyOptimizer& optimizer_;
  const RateFactor factor_;
  int64_t steps_ = 0;
};

}  // namespace farad
