#pragma once

#include <ATen/core/TensorBody.h>

#include <vector>

namespace farad::audit {

/// Weighted by samples. In the order and with the roundings of shared::Model: they are as good as others, but then two
/// results can be compared to the bit.
at::Tensor weighted_mean(const std::vector<at::Tensor>& tensors, const std::vector<double>& samples);

}  // namespace farad::audit
