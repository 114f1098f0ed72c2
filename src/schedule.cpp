#include <farad/schedule.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"

namespace farad {

RateFactor step_decay(int64_t every, double factor) {
  FARAD_CHECK(every > 0, "[optim] step_decay: every ", every, " steps?");
  return [=](int64_t steps) { return std::pow(factor, static_cast<double>(steps / every)); };
}

RateFactor cosine_decay(int64_t length, double least) {
  FARAD_CHECK(length > 0, "[optim] cosine_decay: over ", length, " steps?");
  return [=](int64_t steps) {
    if (steps >= length) return least;
    const double done = static_cast<double>(steps) / static_cast<double>(length);
    return least + (1 - least) * (1 + std::cos(std::numbers::pi * done)) / 2;
  };
}

RateFactor linear_warm_up(int64_t length, double first, RateFactor next) {
  FARAD_CHECK(length > 0, "[optim] linear_warm_up: over ", length, " steps?");
  return [=, next = std::move(next)](int64_t steps) {
    if (steps >= length) return next ? next(steps - length) : 1.0;
    return first + (1 - first) * static_cast<double>(steps) / static_cast<double>(length);
  };
}

Schedule::Schedule(AnyOptimizer& optimizer, RateFactor factor) : optimizer_(optimizer), factor_(std::move(factor)) {
  FARAD_CHECK(factor_, "[optim] a Schedule needs a function");
  resume(0);
}

void Schedule::resume(int64_t steps) {
  FARAD_CHECK(steps >= 0, "[optim] a Schedule after ", steps, " steps?");
  steps_ = steps;
  const double factor = factor_(steps);
  for (size_t i = 0; i < optimizer_.group_count(); i++) optimizer_.scale_lr(i, factor);
}

}  // namespace farad
