#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/audit.h>

#include <vector>

namespace farad::audit {

/// What several workers' gradients make together: their mean, weighted by samples; or what a defect makes of them.
at::Tensor aggregate(const std::vector<at::Tensor>& gradients, const std::vector<int64_t>& samples,
                     const Options& options);

}  // namespace farad::audit
