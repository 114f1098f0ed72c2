#pragma once

#include <ATen/core/TensorBody.h>
#include <torch/csrc/autograd/input_metadata.h>

#include "autograd/torch_compat.h"

namespace farad::autograd {

/// Turns `gradient` into one of what `metadata` describes: summed over the dimensions that were broadcast, in its
/// dtype. Throws a c10::Error that says what is wrong with gradient number `index` if there is no way.
void fit_slowly(at::Tensor& gradient, const torch::autograd::InputMetadata& metadata, size_t index);

/// The same; quick where nothing is to be done, as is most often so. An undefined gradient stays undefined.
inline void fit(at::Tensor& gradient, const torch::autograd::InputMetadata& metadata, size_t index) {
  if (!gradient.defined() || compat::is_placeholder(metadata)) return;
  const auto dtype = compat::gradient_dtype(metadata);
  const bool fits = (!dtype || gradient.scalar_type() == *dtype) && gradient.device() == metadata.device() &&
                    gradient.layout() == metadata.layout() && metadata.is_same_shape(gradient);
  if (!fits) fit_slowly(gradient, metadata, index);
}

}  // namespace farad::autograd
