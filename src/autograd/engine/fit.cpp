#include "autograd/engine/fit.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace farad::autograd {
namespace {

/// Gradients of dense tensors may be sparse, and those of sparse ones dense.
bool layouts_go_together(at::Layout gradient, at::Layout tensor) {
  return gradient == tensor || gradient == at::kSparse || (gradient == at::kStrided && tensor != at::kMkldnn);
}

}  // namespace

void fit_slowly(at::Tensor& gradient, const torch::autograd::InputMetadata& metadata, size_t index) {
  if (!metadata.is_same_shape(gradient)) {
    TORCH_CHECK(metadata.is_expandable_to_shape(gradient),
                metadata.incompatible_shape_error_message(index, gradient).str());
    gradient = metadata.reduce_grad(gradient);
  }
  if (const auto dtype = compat::gradient_dtype(metadata); dtype && *dtype != gradient.scalar_type()) {
    TORCH_CHECK(c10::isComplexType(*dtype) || !gradient.is_complex(), "invalid gradient at index ", index,
                " - expected dtype ", *dtype, " but got ", gradient.scalar_type());
    gradient = gradient.to(*dtype);
  }
  TORCH_CHECK(layouts_go_together(gradient.layout(), metadata.layout()), "invalid gradient at index ", index,
              " - expected layout ", metadata.layout(), " but got ", gradient.layout());
  if (gradient.device() != metadata.device() && !metadata.is_tensor_subclass() && !at::isTensorSubclassLike(gradient)) {
    TORCH_CHECK(gradient.dim() == 0, "invalid gradient at index ", index, " - expected device ", metadata.device(),
                " but got ", gradient.device());
    gradient = gradient.to(metadata.device());
  }
}

}  // namespace farad::autograd
