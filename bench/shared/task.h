#pragma once

#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <string>

/// What is trained, however it is: a layer learns to give back what it is given. PyTorch's side has the same numbers,
/// in torch_shared.py.
namespace farad::bench {

constexpr int64_t small_width = 64, large_width = 5000;  // 16 KB and 100 MB
constexpr int64_t batch = 8;
constexpr double rate = 0.05;
constexpr int least_steps = 5;  // of each process on the mean: those of the large model take longer than a short run

inline torch::nn::Linear make_linear(const std::string& size) {
  at::manual_seed(1);
  const int64_t width = size == "large" ? large_width : small_width;
  return torch::nn::Linear(width, width);
}

/// So many batches.
inline at::Tensor make_batches(const torch::nn::Linear& module, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({64, batch, module->weight.size(1)});
}

inline at::Tensor loss_of(torch::nn::Linear& module, const at::Tensor& x) { return at::mse_loss(module(x), x); }

}  // namespace farad::bench
