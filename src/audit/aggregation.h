#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/audit.h>

#include <vector>

namespace farad::audit {

/// Weighted by samples. In the order and with the roundings of shared::Model: they are as good as others, but then two
/// results can be compared to the bit.
at::Tensor weighted_mean(const std::vector<at::Tensor>& tensors, const std::vector<double>& samples);

/// What several workers' gradients make together: their mean, weighted by samples; or what a defect makes of them.
at::Tensor aggregate(const std::vector<at::Tensor>& gradients, const std::vector<int64_t>& samples,
                     const Options& options);

}  // namespace farad::audit
