#include "collectives/training.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/remainder.h>
#include <c10/core/GradMode.h>
#include <farad/collectives.h>
#include <farad/data_parallel.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cmath>
#include <iostream>

#include "common/member.h"
#include "common/sample.h"

namespace farad::bench {
namespace {

using at::Tensor;
using Clock = std::chrono::steady_clock;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Linear;

constexpr int64_t batch = 32, classes = 10;
constexpr double rate = 0.05;

/// The same on both sides, without a generator that both would have to have.
Tensor numbers(at::IntArrayRef shape, double from, double scale) {
  return at::arange(c10::multiply_integers(shape), at::kDouble).add(from).sin().mul(scale).to(at::kFloat).view(shape);
}

struct Mlp : torch::nn::Module {
  Linear first{64, 128}, second{128, 128}, third{128, classes};
  Mlp() {
    register_module("first", first);
    register_module("second", second);
    register_module("third", third);
  }
  Tensor forward(const Tensor& x) { return third(at::relu(second(at::relu(first(x))))); }
  static Tensor input(int rank) { return numbers({batch, 64}, 1000.5 * (rank + 1), 1); }
};

struct ConvNet : torch::nn::Module {
  Conv2d first{Conv2dOptions(1, 16, 3).padding(1)};
  Conv2d second{Conv2dOptions(16, 32, 3).stride(2).padding(1)};
  Conv2d third{Conv2dOptions(32, 64, 3).stride(2).padding(1)};
  Linear last{64 * 7 * 7, classes};
  ConvNet() {
    register_module("first", first);
    register_module("second", second);
    register_module("third", third);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) { return last(at::relu(third(at::relu(second(at::relu(first(x)))))).flatten(1)); }
  static Tensor input(int rank) { return numbers({batch, 1, 28, 28}, 1000.5 * (rank + 1), 1); }
};

void set_parameters(torch::nn::Module& module) {
  const c10::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) {
    const double fan_in = static_cast<double>(parameter.numel()) / static_cast<double>(parameter.size(0));
    parameter.copy_(numbers(parameter.sizes(), 0.25 * static_cast<double>(parameter.numel()), 1 / std::sqrt(fan_in)));
  }
}

void check_equal(const torch::nn::Module& module, Group& group) {
  const c10::NoGradGuard no_grad;
  std::vector<Tensor> flat;
  for (const auto& parameter : module.parameters()) flat.push_back(parameter.reshape({-1}));
  const auto mine = at::cat(flat);
  TORCH_CHECK(at::equal(group.all_reduce(mine, Op::Max), group.all_reduce(mine, Op::Min)),
              "[bench] members that trained together do not have the same parameters");
}

template <class Module>
nlohmann::json train(Worker& worker, const Network& network) {
  Module module;
  set_parameters(module);
  DataParallel parallel(module, Group(worker));
  torch::optim::SGD optimizer(module.parameters(), rate);
  const auto x = Module::input(worker.rank());
  const auto labels = at::remainder(at::arange(batch), classes);
  Tensor loss;
  const auto step = [&] {
    for (auto& parameter : module.parameters()) parameter.mutable_grad().reset();
    loss = at::cross_entropy_loss(module.forward(x), labels);
    loss.backward();
    optimizer.step();
  };
  std::vector<double> times;
  for (int i = 0; i < network.steps; ++i) {
    const auto start = Clock::now();
    step();
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    if (i >= network.steps / 10) times.push_back(took.count());  // Those before it warm up.
  }
  Group group(worker);
  check_equal(module, group);
  return {{"step", summarise(std::move(times))}, {"loss", group.all_reduce(loss.detach(), Op::Mean).item<double>()}};
}

}  // namespace

void train_together(const Words& words) {
  Worker worker = join(words, std::stoi(words[3]), std::stoi(words[2]));
  const nlohmann::json measured{{networks[0].name, train<Mlp>(worker, networks[0])},
                                {networks[1].name, train<ConvNet>(worker, networks[1])}};
  if (worker.rank() == 0) std::cout << measured << std::endl;
  Group(worker).barrier();
  worker.close();
}

}  // namespace farad::bench
