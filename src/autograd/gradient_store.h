#pragma once

#include <ATen/core/TensorBody.h>

#include <unordered_map>
#include <utility>
#include <vector>

namespace farad::autograd {

/// Gradients by leaf, in the order in which the leaves were first seen. One thread at a time.
class GradientStore {
 public:
  using Entry = std::pair<at::Tensor, at::Tensor>;  ///< leaf, gradient

  /// Adds `gradient` to what is there for `leaf`. With `differentiable` the sum is recorded by the local autograd.
  void add(const at::Tensor& leaf, at::Tensor gradient, bool differentiable);
  /// Replaces what is there for `leaf`, if anything is.
  void set(const at::Tensor& leaf, at::Tensor gradient);
  const std::vector<Entry>& entries() const { return entries_; }
  at::Tensor find(const at::Tensor& leaf) const;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<const void*, size_t> places_;  // by the leaf's TensorImpl, which its entry keeps
};

}  // namespace farad::autograd
