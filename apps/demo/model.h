#pragma once

#include <farad/fields.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>

namespace farad::demo {

/// A transformer that predicts the next character.
struct ModelOptions {
  int64_t vocabulary = 0;  ///< how many different characters there are
  int64_t context = 48;    ///< how many characters it looks at
  int64_t width = 128;
  int64_t heads = 4;
  int64_t blocks = 3;
  uint64_t seed = 1;  ///< of the first values of its parameters
  FARAD_FIELDS(vocabulary, context, width, heads, blocks, seed)
};

/// Causal attention and two linear layers, each with the norm before and its input added after.
class Block : public torch::nn::Module {
 public:
  explicit Block(const ModelOptions& options);
  at::Tensor forward(const at::Tensor& x);

 private:
  at::Tensor attend(const at::Tensor& x);

  const int64_t heads_;
  torch::nn::LayerNorm before_attention_{nullptr}, before_mlp_{nullptr};
  torch::nn::Linear query_key_value_{nullptr}, projection_{nullptr}, widen_{nullptr}, narrow_{nullptr};
};

/// Some blocks of the model, in sequence: from the first one on with the embedding of characters and positions before
/// it, up to the last with the norm and the layer that scores the next character behind it. The parameters of block b
/// begin with the same values in whatever part it is, so parts of any number make the same model; and they come in the
/// same order.
class ModelPart : public torch::nn::Module {
 public:
  /// Blocks [first, end).
  ModelPart(const ModelOptions& options, int64_t first, int64_t end);

  /// What goes into the blocks: of (batch, length) characters their embedding, elsewhere `input` itself.
  at::Tensor enter(const at::Tensor& input);
  /// The blocks; after the last one, (batch, length, vocabulary) scores.
  at::Tensor advance(at::Tensor x);
  at::Tensor forward(const at::Tensor& input) { return advance(enter(input)); }

 private:
  torch::nn::Embedding characters_{nullptr}, positions_{nullptr};
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear scores_{nullptr};
};

/// Mean over all characters of how surprising the right ones are, in nats.
at::Tensor surprise(const at::Tensor& scores, const at::Tensor& targets);

}  // namespace farad::demo
