#include "autograd/engine/accumulate.h"

#include <ATen/TensorOperators.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>

#include <utility>

namespace farad::autograd {
namespace {

/// Whether adding to `tensor` in place is seen by nobody.
bool is_ours_alone(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && !at::isTensorSubclassLike(tensor) && !tensor._is_zerotensor() &&
         !tensor.is_nested() && tensor.is_non_overlapping_and_dense() && tensor.has_storage() &&
         tensor.storage().use_count() == 1;
}

/// Whether somebody sees the memory of `gradient` without holding that tensor itself. A view keeps alive what it is a
/// view of, which alone is nobody.
bool is_memory_shared(const at::Tensor& gradient) {
  if (!gradient.has_storage() || gradient.storage().use_count() == 1) return false;
  if (gradient.storage().use_count() != 2 || !gradient.is_view()) return true;
  const auto& base = gradient._base();
  return base.use_count() != 1 || !base.is_alias_of(gradient);
}

/// Whether `gradient` can be kept as it is. Libtorch would put another tensor in front of its memory, by detach(),
/// which costs as much as a small node.
bool can_be_kept(const at::Tensor& variable, const at::Tensor& gradient) {
  return !at::GradMode::is_enabled() && variable.layout() == at::kStrided && gradient.layout() == at::kStrided &&
         !gradient.requires_grad() && !gradient.is_view() && gradient.use_count() == 1 && gradient.has_storage() &&
         gradient.storage().use_count() == 1 && !at::isTensorSubclassLike(gradient) &&
         torch::autograd::utils::obeys_layout_contract(gradient, variable);
}

}  // namespace

void accumulate(at::Tensor& sum, at::Tensor gradient) {
  if (!gradient.defined()) return;
  if (!sum.defined()) {
    sum = std::move(gradient);
    return;
  }
  // A sparse tensor can be added to a dense one, but not the other way round.
  const bool sparse = sum.is_sparse() || sum.is_sparse_csr();
  const bool turned = sparse && (gradient.layout() == at::kStrided || !at::GradMode::is_enabled());
  at::Tensor& to = turned ? gradient : sum;
  at::Tensor& what = turned ? sum : gradient;
  if (!at::GradMode::is_enabled() && is_ours_alone(to) && !at::isTensorSubclassLike(what)) {
    to.add_(what);
    if (turned) sum = std::move(gradient);
  } else {
    sum = to + what;
  }
}

at::Tensor own_gradient(const at::Tensor& variable, at::Tensor gradient, bool seen_by_hooks) {
  if (!seen_by_hooks && can_be_kept(variable, gradient)) return gradient;
  // Libtorch takes a gradient whose tensor nobody else holds. But its memory may be that of a root's gradient or of a
  // message, which others see: then no number of holders is small enough.
  const size_t holders = is_memory_shared(gradient) ? 0 : 1 + seen_by_hooks;
  at::Tensor none;
  at::Tensor owned;
  torch::autograd::AccumulateGrad::accumulateGrad(variable, none, gradient, holders,
                                                  [&owned](at::Tensor&& result) { owned = std::move(result); });
  return owned;
}

}  // namespace farad::autograd
