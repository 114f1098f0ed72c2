#pragma once

#include <ATen/core/TensorBody.h>

namespace farad::net {

/// The tensor as a receiver in the same process gets it: the memory itself if nobody else can reach it and there is
/// nothing around it, a copy otherwise; a leaf either way, with requires_grad as it was.
at::Tensor as_value(const at::Tensor& tensor);

}  // namespace farad::net
