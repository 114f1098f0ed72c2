#pragma once

#include <ATen/core/TensorBody.h>

namespace farad::autograd {

/// Adds `gradient` to `sum`; takes it if there is none yet. Neither is seen to change by anybody else who holds it: the
/// sum is formed in place only where it, and its memory, is ours alone, and no graph is recorded.
void accumulate(at::Tensor& sum, at::Tensor gradient);

/// `gradient` as the gradient of the leaf `variable`, in memory that nobody else refers to, and laid out like the
/// leaf's where libtorch would do so. Copies only if it must.
at::Tensor own_gradient(const at::Tensor& variable, at::Tensor gradient, bool seen_by_hooks);

}  // namespace farad::autograd
