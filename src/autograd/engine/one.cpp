#include "autograd/engine/one.h"

#include <ATen/ScalarOps.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/ops/ones_like.h>

namespace farad::autograd {

/// For a plain number, which a loss mostly is, libtorch can do without its dispatcher, which costs more than all else
/// of a small pass's beginning.
at::Tensor one_for(const at::Tensor& root) {
  const auto dtype = root.scalar_type();
  const bool plain = root.dim() == 0 && (dtype == at::kFloat || dtype == at::kDouble) && root.device().is_cpu() &&
                     root.layout() == at::kStrided && !at::isTensorSubclassLike(root);
  return plain ? at::detail::scalar_tensor_static(1, dtype, at::kCPU) : at::ones_like(root);
}

}  // namespace farad::autograd
