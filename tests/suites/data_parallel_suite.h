#pragma once

#include <ATen/ATen.h>
#include <farad/data_parallel.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "suites/rpc_suite.h"

namespace farad::test {

using at::Tensor;

/// What DataParallel promises (include/farad/data_parallel.h), with all workers in this process.
class DataParallelSuite : public RpcSuite {
 protected:
  std::vector<int> sizes() const { return GetParam() == "local" ? std::vector{1, 2, 3, 4, 5} : std::vector{2, 3}; }
};

/// Doubles that follow from the seed.
Tensor numbers(at::IntArrayRef shape, int seed);

struct Net : torch::nn::Module {
  torch::nn::Linear first, second, third;
  explicit Net(int seed = 0, int64_t width = 5);
  Tensor forward(const Tensor& x);
};

Tensor loss_of(Net& net, const Tensor& inputs);

/// In buckets of a parameter or two, so that there are several.
DataParallelOptions small_buckets(BucketHook hook = sum_bucket);

}  // namespace farad::test
