#include "autograd/gradient_store.h"

#include <c10/core/GradMode.h>

#include "autograd/engine/accumulate.h"

namespace farad::autograd {

void GradientStore::add(const at::Tensor& leaf, at::Tensor gradient, bool differentiable) {
  const auto [found, added] = places_.try_emplace(leaf.unsafeGetTensorImpl(), entries_.size());
  if (added) entries_.emplace_back(leaf, at::Tensor());
  const c10::AutoGradMode mode(differentiable);
  accumulate(entries_[found->second].second, std::move(gradient));
}

void GradientStore::set(const at::Tensor& leaf, at::Tensor gradient) {
  const auto found = places_.find(leaf.unsafeGetTensorImpl());
  if (found != places_.end()) entries_[found->second].second = std::move(gradient);
}

at::Tensor GradientStore::find(const at::Tensor& leaf) const {
  const auto found = places_.find(leaf.unsafeGetTensorImpl());
  return found == places_.end() ? at::Tensor() : entries_[found->second].second;
}

}  // namespace farad::autograd
