#pragma once

#include <ATen/core/TensorBody.h>

#include <vector>

namespace farad::collectives {

/// `sum`, which was computed elsewhere and has no history, as what came of adding `summands` and dividing by `divisor`.
/// Of those only what they lead to counts. Differentiable any number of times.
at::Tensor summed(at::Tensor sum, const std::vector<at::Tensor>& summands, double divisor);

}  // namespace farad::collectives
