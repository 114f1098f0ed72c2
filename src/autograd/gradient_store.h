#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/engine/evaluator.h"

namespace farad::autograd {

/// Gradients by leaf, in the order in which the leaves were first seen. One thread at a time.
class GradientStore {
 public:
  using Entry = std::pair<at::Tensor, at::Tensor>;  ///< leaf, gradient

  /// Adds to what is there for the leaf. With `differentiable` the sum is recorded by the local autograd. Throws if the
  /// two cannot be added, because the leaf has been given other data in between for example; what was there stays.
  void add(LeafGradient gradient, bool differentiable);
  /// What the calling thread's current streams are given from now on may use the gradients.
  void wait_here() const;
  /// Replaces what is there for `leaf`, if anything is. The calling thread's current stream computes `gradient`.
  void set(const at::Tensor& leaf, at::Tensor gradient);
  const std::vector<Entry>& entries() const { return entries_; }
  at::Tensor find(const at::Tensor& leaf) const;
  /// The same, and when it may be used.
  std::pair<at::Tensor, Ready> look(const at::Tensor& leaf) const;

 private:
  static constexpr size_t few = 8;
  static constexpr size_t nowhere = SIZE_MAX;
  size_t place_of(const at::Tensor& leaf) const;

  std::vector<Entry> entries_;
  std::vector<Ready> ready_;                        // by entry: when its gradient may be used
  std::unordered_map<const void*, size_t> places_;  // of more than a few: by TensorImpl, which the entry keeps
};

}  // namespace farad::autograd
