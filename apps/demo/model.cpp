#include "demo/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

namespace farad::demo {
namespace {

/// Matrices small and random, biases zero; norms stay as they are made. By a generator of its own, for torch's is
/// shared by everything in the process.
void initialise(torch::nn::Module& module, uint64_t seed) {
  const at::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (auto& named : module.named_parameters()) {
    auto& value = named.value();
    if (value.dim() > 1) {
      value.normal_(0, 1 / std::sqrt(3.0 * static_cast<double>(value.size(1))), generator);
    } else if (named.key().ends_with("bias")) {
      value.zero_();
    }
  }
}

}  // namespace

Block::Block(const ModelOptions& options) : heads_(options.heads) {
  using torch::nn::LayerNorm, torch::nn::LayerNormOptions, torch::nn::Linear;
  const int64_t width = options.width;
  TORCH_CHECK(width % heads_ == 0, "[model] a width of ", width, " is no multiple of ", heads_, " heads");
  before_attention_ = register_module("before_attention", LayerNorm(LayerNormOptions({width})));
  query_key_value_ = register_module("query_key_value", Linear(width, 3 * width));
  projection_ = register_module("projection", Linear(width, width));
  before_mlp_ = register_module("before_mlp", LayerNorm(LayerNormOptions({width})));
  widen_ = register_module("widen", Linear(width, 4 * width));
  narrow_ = register_module("narrow", Linear(4 * width, width));
}

at::Tensor Block::forward(const at::Tensor& x) {
  const auto attended = x + attend(before_attention_(x));
  return attended + narrow_(at::gelu(widen_(before_mlp_(attended))));
}

at::Tensor Block::attend(const at::Tensor& x) {
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
  const auto split =
      query_key_value_(x).view({batch, length, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
  const auto future = at::ones({length, length}, at::kBool).triu(1);
  const auto weights = at::matmul(split[0], split[1].transpose(-2, -1))
                           .mul(1 / std::sqrt(static_cast<double>(width / heads_)))
                           .masked_fill(future, -std::numeric_limits<float>::infinity())
                           .softmax(-1);
  return projection_(at::matmul(weights, split[2]).transpose(1, 2).reshape({batch, length, width}));
}

ModelPart::ModelPart(const ModelOptions& options, int64_t first, int64_t end) {
  TORCH_CHECK(0 <= first && first <= end && end <= options.blocks, "[model] there are no blocks ", first, " to ", end,
              " among ", options.blocks);
  const uint64_t seed = options.seed * static_cast<uint64_t>(options.blocks + 3);
  if (first == 0) {
    characters_ = register_module("characters", torch::nn::Embedding(options.vocabulary, options.width));
    positions_ = register_module("positions", torch::nn::Embedding(options.context, options.width));
    initialise(*characters_, seed);
    initialise(*positions_, seed + 2 + static_cast<uint64_t>(options.blocks));
  }
  register_module("blocks", blocks_);
  for (int64_t b = first; b < end; b++) {
    auto block = std::make_shared<Block>(options);
    initialise(*block, seed + 1 + static_cast<uint64_t>(b));
    blocks_->push_back(block);
  }
  if (end == options.blocks) {
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
    scores_ = register_module("scores", torch::nn::Linear(options.width, options.vocabulary));
    initialise(*scores_, seed + 1 + static_cast<uint64_t>(options.blocks));
  }
}

at::Tensor ModelPart::enter(const at::Tensor& input) {
  if (!characters_) return input;
  return characters_(input) + positions_(at::arange(input.size(1)));
}

at::Tensor ModelPart::advance(at::Tensor x) {
  for (const auto& block : *blocks_) x = block->as<Block>()->forward(x);
  return scores_ ? scores_(norm_(x)) : x;
}

at::Tensor surprise(const at::Tensor& scores, const at::Tensor& targets) {
  return at::cross_entropy_loss(scores.flatten(0, 1), targets.flatten());
}

}  // namespace farad::demo
