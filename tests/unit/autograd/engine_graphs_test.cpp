#include <farad/error.h>
#include <torch/csrc/autograd/custom_function.h>

#include "engine_against_torch.h"

namespace farad::autograd {
namespace {

class EngineGraphs : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(7); }
};

TEST_F(EngineGraphs, BroadcastOperandsGetGradientsOfTheirShape) {
  auto a = leaf({4, 1, 3}), b = leaf({5, 1}), c = leaf({});
  expect_same_as_torch((a * b + c).exp().sum(), {a, b, c});
}

TEST_F(EngineGraphs, ViewsAndInPlaceOperations) {
  auto a = leaf({4, 6}), b = leaf({2, 6});
  auto x = a * 2;
  x.narrow(0, 1, 2).mul_(b);
  auto y = x.t();
  y.select(0, 3).add_(1);
  y.unsqueeze(0).sigmoid_();
  expect_same_as_torch((x * y.t()).sum(), {a, b});
}

TEST_F(EngineGraphs, InPlaceOnAViewOfALeafsExpansion) {
  auto a = leaf({1, 3});
  auto x = a.expand({4, 3}).clone();
  x.diagonal().fill_(0);
  x[2] = a[0] * 3;
  expect_same_as_torch(x.pow(2).sum(), {a});
}

TEST_F(EngineGraphs, SharedSubexpressionsAddUpInLibtorchsOrder) {
  auto a = leaf({64}), b = leaf({64});
  auto shared = a * b;
  auto sum = shared;
  for (int i = 0; i < 20; i++) sum = sum * shared.sin() + shared / (i + 1);
  expect_same_as_torch((sum + shared).sum(), {a, b});
}

TEST_F(EngineGraphs, ALeafUsedManyTimes) {
  auto a = leaf({16});
  auto sum = a;
  for (int i = 0; i < 9; i++) sum = sum + a * (0.1 * i);
  expect_same_as_torch(sum.sum(), {a});
}

TEST_F(EngineGraphs, ALeafThatIsARoot) {
  auto a = leaf({3});
  const auto seed = at::randn({3});
  expect_same_as_torch({a}, {seed}, {a});
  expect_same_as_torch({a, a * 2}, {seed, seed}, {a});
}

TEST_F(EngineGraphs, SeveralRootsWithGradientsOfTheirOwn) {
  auto a = leaf({3, 2}), unused = leaf({2});
  auto x = a * 3;
  expect_same_as_torch({x, x.exp(), x.sum()}, {at::randn({3, 2}), at::randn({3, 2}), at::Tensor()}, {a, unused});
}

TEST_F(EngineGraphs, OutputsThatAreNotUsedHaveUndefinedGradients) {
  auto a = leaf({4, 6}), b = leaf({5, 5});
  auto parts = a.split(2, 1);
  auto [values, indices] = a.topk(2, 1);
  auto eigen = std::get<0>(at::linalg_eigh(at::matmul(b, b.t())));
  expect_same_as_torch(parts[1].sum() + values.prod() + eigen.sum(), {a, b});
}

TEST_F(EngineGraphs, MixedDtypes) {
  auto a = leaf({3, 3}), b = leaf({3, 1}, at::kDouble), c = leaf({3}, at::kHalf), d = leaf({}, at::kBFloat16);
  expect_same_as_torch((a * b + c * a + d * b).sum(), {a, b, c, d});
}

TEST_F(EngineGraphs, Complex) {
  auto a = leaf({3}, at::kComplexFloat), b = leaf({3}), c = leaf({3, 1}, at::kComplexDouble);
  auto x = (a * b + c).conj() * a;
  expect_same_as_torch(at::real(x).sum() + at::imag(x).abs().sum(), {a, b, c});
}

TEST_F(EngineGraphs, SparseGradientsStaySparse) {
  auto table = leaf({10, 3});
  const auto words = at::randint(10, {6}, at::kLong);
  expect_same_as_torch(at::embedding(table, words, -1, false, /*sparse=*/true).sum(), {table});
}

TEST_F(EngineGraphs, SparseAndDenseGradientsOfOneLeafAddUpInEitherOrder) {
  auto table = leaf({10, 3});
  const auto words = at::randint(10, {6}, at::kLong);
  auto looked_up = [&] { return at::embedding(table, words, -1, false, true).sum(); };
  auto dense = [&] { return (table * table).sum(); };
  auto first = looked_up(), second = dense(), third = looked_up(), fourth = looked_up();
  expect_same_as_torch(first + second + third, {table});
  expect_same_as_torch(second + third, {table});
  expect_same_as_torch(third + fourth, {table});
}

TEST_F(EngineGraphs, SparseThenDenseAddUpWhileAGraphIsRecorded) {
  auto table = leaf({10, 3});
  const auto words = at::randint(10, {6}, at::kLong);
  auto dense = (table * table).sum();
  auto sum = at::embedding(table, words, -1, false, true).sum() + dense;
  // The sparse part comes first, and libtorch cannot add a dense one to it.
  const auto ours = run_local({sum}, {}, {.create_graph = true, .all_leaves = false, .wanted = {table}});
  const auto expected = 2 * table + at::zeros({10, 3}).index_add(0, words, at::ones({6, 3}));
  EXPECT_TRUE(at::allclose(ours.wanted[0], expected));
  EXPECT_TRUE(ours.wanted[0].requires_grad());
}

TEST_F(EngineGraphs, ConvolutionBatchNormPoolingInChannelsLast) {
  auto x = leaf({2, 3, 8, 8}), w = leaf({4, 3, 3, 3}), bias = leaf({4}), scale = leaf({4}), shift = leaf({4});
  auto mean = at::zeros({4}), variance = at::ones({4});
  for (auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    auto y = at::conv2d(x.contiguous(format), w.contiguous(format), bias, 1, 1);
    y = at::batch_norm(y, scale, shift, mean, variance, true, 0.1, 1e-5, false);
    y = at::max_pool2d(at::relu(y), 2);
    expect_same_as_torch(at::dropout(y, 0.3, true).pow(2).mean(), {x, w, bias, scale, shift});
  }
}

TEST_F(EngineGraphs, RecurrentNetwork) {
  auto x = leaf({5, 2, 3}), h = leaf({1, 2, 4}), c = leaf({1, 2, 4});
  auto wi = leaf({16, 3}), wh = leaf({16, 4}), bi = leaf({16}), bh = leaf({16});
  auto [out, hn, cn] = at::lstm(x, {h, c}, {wi, wh, bi, bh}, true, 1, 0.0, true, false, false);
  expect_same_as_torch(out.sum() + hn.pow(2).sum(), {x, h, c, wi, wh, bi, bh});
}

TEST_F(EngineGraphs, Attention) {
  auto x = leaf({2, 6, 8}), wq = leaf({8, 8}), wk = leaf({8, 8}), wv = leaf({8, 8}), g = leaf({8}), b = leaf({8});
  auto n = at::layer_norm(x, {8}, g, b);
  auto heads = [&](const at::Tensor& w) { return at::matmul(n, w).view({2, 6, 2, 4}).transpose(1, 2); };
  auto weights = at::softmax(at::matmul(heads(wq), heads(wk).transpose(-2, -1)) / 2, -1);
  auto y = at::matmul(weights, heads(wv)).transpose(1, 2).reshape({2, 6, 8}) + x;
  expect_same_as_torch(at::gelu(y).sum(), {x, wq, wk, wv, g, b});
}

/// Two outputs, of which the second is not differentiable; materialises undefined gradients.
struct SplitSign : torch::autograd::Function<SplitSign> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, at::Tensor x, at::Tensor y) {
    auto product = x * y, sign = x.sign();
    context->save_for_backward({x, y});
    context->mark_non_differentiable({sign});
    return {product, x + y, sign};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1] + gradients[1], gradients[0] * saved[0] + gradients[1]};
  }
};

TEST_F(EngineGraphs, CustomFunctions) {
  auto a = leaf({3}), b = leaf({3});
  auto out = SplitSign::apply(a * 2, b);
  expect_same_as_torch((out[0] * out[2]).sum(), {a, b});
  expect_same_as_torch((out[1] + out[0]).sum(), {a, b});
}

struct Stop : torch::autograd::Function<Stop> {
  static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    return {at::Tensor()};
  }
};

TEST_F(EngineGraphs, WhatIsReachedByUndefinedGradientsOnlyHasNone) {
  auto a = leaf({3}), b = leaf({3});
  expect_same_as_torch((Stop::apply(a.exp()) * b).sum(), {a, b});
}

TEST_F(EngineGraphs, RootGradientsAreMadeToFit) {
  auto a = leaf({3});
  auto x = a * 2;
  expect_same_as_torch({x}, {at::randn({3}, at::kDouble)}, {a});
  EXPECT_THROW(run_local({x}, {at::randn({4})}), Error);
}

TEST_F(EngineGraphs, ALeafsGradientIsNoneElsesMemory) {
  auto a = leaf({3});
  const auto seed = at::randn({3});
  const auto copy = seed.clone();
  auto gradient = run_local({a.view({3})}, {seed}).gradients.at(0).gradient;
  gradient.zero_();
  EXPECT_TRUE(at::equal(seed, copy));

  auto b = leaf({3}), c = leaf({3});
  auto both = run_local({b + c}, {at::ones({3})}).gradients;
  both.at(0).gradient.zero_();
  EXPECT_TRUE(at::equal(both.at(1).gradient, at::ones({3})));
}

}  // namespace
}  // namespace farad::autograd
