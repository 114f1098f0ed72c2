#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "autograd/engine/run_local.h"

namespace farad::autograd {

using Tensors = std::vector<at::Tensor>;

inline at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return at::randn(sizes, dtype).requires_grad_();
}

/// The same numbers to the last bit, in the same layout.
inline testing::AssertionResult same(const at::Tensor& ours, const at::Tensor& theirs) {
  if (ours.defined() != theirs.defined()) {
    return testing::AssertionFailure() << "defined: " << ours.defined() << ", by libtorch: " << theirs.defined();
  }
  if (!ours.defined()) return testing::AssertionSuccess();
  if (ours.dtype() != theirs.dtype() || ours.layout() != theirs.layout() || ours.sizes() != theirs.sizes()) {
    return testing::AssertionFailure() << ours.toString() << ours.sizes() << ", by libtorch: " << theirs.toString()
                                       << theirs.sizes();
  }
  if (ours.is_sparse()) {
    if (auto indices = same(ours._indices(), theirs._indices()); !indices) return indices;
    return same(ours._values(), theirs._values());
  }
  if (ours.strides() != theirs.strides()) {
    return testing::AssertionFailure() << "strides " << ours.strides() << ", by libtorch: " << theirs.strides();
  }
  const auto a = ours.contiguous(), b = theirs.contiguous();
  if (std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) != 0) {
    return testing::AssertionFailure() << ours << "\nby libtorch:\n" << theirs;
  }
  return testing::AssertionSuccess();
}

inline at::Tensor find(const std::vector<LeafGradient>& gradients, const at::Tensor& leaf) {
  for (const auto& [key, gradient, ready] : gradients) {
    if (key.is_same(leaf)) return gradient;
  }
  return {};
}

/// Runs backward() and grad() over the graph, by us and by libtorch, and compares what `leaves` get. The graph stays.
inline void expect_same_as_torch(const Tensors& roots, const Tensors& gradients, const Tensors& leaves,
                                 bool create_graph = false) {
  const auto ours = run_local(roots, gradients, {.create_graph = create_graph, .retain_graph = true});
  for (const auto& leaf : leaves) EXPECT_FALSE(leaf.grad().defined()) << ".grad was touched";
  const auto wanted = run_local(
      roots, gradients, {.create_graph = create_graph, .retain_graph = true, .all_leaves = false, .wanted = leaves});
  EXPECT_TRUE(wanted.gradients.empty());

  torch::autograd::backward(roots, gradients, true, create_graph);
  Tensors accumulated;
  for (const auto& leaf : leaves) accumulated.push_back(std::exchange(leaf.mutable_grad(), {}));
  // Afterwards, because in 1.13 it adds to .grad where in-place operations on views were recorded.
  const auto grads = torch::autograd::grad(roots, leaves, gradients, true, create_graph, /*allow_unused=*/true);
  for (size_t i = 0; i < leaves.size(); i++) {
    EXPECT_TRUE(same(find(ours.gradients, leaves[i]), accumulated[i])) << "backward, leaf " << i;
    EXPECT_TRUE(same(wanted.wanted[i], grads[i])) << "grad, leaf " << i;
    leaves[i].mutable_grad().reset();
  }
}

inline void expect_same_as_torch(const at::Tensor& root, const Tensors& leaves) {
  expect_same_as_torch({root}, {}, leaves);
}

}  // namespace farad::autograd
