#include <farad/loss_scale.h>

#include <ATen/TensorOperators.h>

#include "base/check.h"

namespace farad {

LossScale::LossScale(Options options) : options_(options), value_(options.value) {
  FARAD_CHECK(options.value > 0 && options.growth >= 1 && options.backoff > 0 && options.backoff <= 1,
              "[optim] LossScale: value ", options.value, ", growth ", options.growth, ", backoff ", options.backoff,
              ": it has to be positive, to grow by at least 1 and to shrink by at most 1");
}

at::Tensor LossScale::apply(const at::Tensor& loss) const { return loss * value_; }

bool LossScale::step(AnyOptimizer& optimizer, Context& context) {
  if (!optimizer.step_if_finite({&context}, value_)) {
    value_ *= options_.backoff;
    good_ = 0;
    return false;
  }
  if (++good_ >= options_.patience) {
    value_ *= options_.growth;
    good_ = 0;
  }
  return true;
}

double LossScale::clip_grad_norm(AnyOptimizer& optimizer, Context& context, double max_norm) const {
  return optimizer.clip_grad_norm(context, max_norm * value_) / value_;
}

}  // namespace farad
