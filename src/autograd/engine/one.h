#pragma once

#include <ATen/core/TensorBody.h>

namespace farad::autograd {

/// A one, as the gradient of a root that says none.
at::Tensor one_for(const at::Tensor& root);

}  // namespace farad::autograd
