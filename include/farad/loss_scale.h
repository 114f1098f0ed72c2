#pragma once

#include <farad/optim.h>

#include <cstdint>

namespace farad {

/// Loss scaling for gradients of low precision: the loss is multiplied by a number so large that small gradients do not
/// vanish, and the gradients divided by it before they are applied. Where one is not finite, on any worker, the step is
/// skipped on all of them, and the number becomes smaller; after many good steps it becomes larger. One thread.
///
///     context.backward({scale.apply(loss)});
///     scale.step(optimizer, context);
class LossScale {
 public:
  struct Options {
    double value = 65536;
    double growth = 2;     ///< times, after `patience` good steps in a row
    double backoff = 0.5;  ///< times, after a bad one
    int64_t patience = 2000;
  };
  LossScale() : LossScale(Options()) {}
  explicit LossScale(Options options);

  at::Tensor apply(const at::Tensor& loss) const;
  /// False if it was skipped.
  bool step(AnyOptimizer& optimizer, Context& context);
  /// Before step(): AnyOptimizer::clip_grad_norm, of what the gradients are without the scale.
  double clip_grad_norm(AnyOptimizer& optimizer, Context& context, double max_norm) const;
  double value() const { return value_; }

 private:
  const Options options_;
  double value_;
  int64_t good_ = 0;  // in a row
};

}  // namespace farad
