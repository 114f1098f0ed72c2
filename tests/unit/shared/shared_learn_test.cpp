// A backward pass and a step as one: the same as libtorch's backward() and a step by what it left.

#include <ATen/ATen.h>
#include <farad/autograd.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <farad/spawn.h>
#include <farad/worker.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "unit/shared/models.h"

namespace farad::shared {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;

torch::nn::Sequential network() {
  at::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(5, 7), torch::nn::Tanh(), torch::nn::Linear(7, 2));
}

Tensor loss_of(torch::nn::Sequential& module, int round) {
  at::manual_seed(200 + round);
  const auto x = at::randn({6, 5});
  return at::mse_loss(module->forward(x), at::randn({6, 2}));
}

Tensor twice(const Tensor& x) { return x * 2; }

class SharedLearn : public testing::TestWithParam<Policy> {};

TEST_P(SharedLearn, GivesWhatBackwardAndStepGiveToTheBit) {
  auto learns = network(), steps = network();
  const auto options = torch::optim::AdamOptions(0.05);
  auto model = Model::create(fresh_name(), learns, options, {GetParam()});
  auto beside = Model::create(fresh_name(), steps, options, {GetParam()});
  for (int round = 0; round < 5; ++round) {
    model.learn(loss_of(learns, round));
    for (auto& parameter : steps->parameters()) parameter.mutable_grad() = Tensor();
    loss_of(steps, round).backward();
    beside.step();
    for (size_t i = 0; i < learns->parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(learns->parameters()[i], steps->parameters()[i])) << "round " << round << ", " << i;
    }
  }
}

TEST_P(SharedLearn, ReadsAndLeavesNoGrad) {
  auto module = linear(), beside = linear();
  auto model = Model::create(fresh_name(), module, torch::optim::SGDOptions(0.1), {GetParam()});
  auto other = Model::create(fresh_name(), beside, torch::optim::SGDOptions(0.1), {GetParam()});
  module->weight.mutable_grad() = at::full_like(module->weight.detach(), 1e6);
  const auto x = at::ones({2, 4});
  model.learn(module(x).square().sum());
  other.learn(beside(x).square().sum());
  expect_equal(module, beside);
  EXPECT_TRUE(at::equal(module->weight.grad(), at::full({3, 4}, 1e6)));
  EXPECT_FALSE(module->bias.grad().defined());
}

TEST_P(SharedLearn, WhatTheLossDoesNotReachStaysAndLeavesOfOthersGetNothing) {
  auto module = linear(), alone = linear();
  auto model = Model::create(fresh_name(), module, torch::optim::SGDOptions(0.1).momentum(0.9), {GetParam()});
  const auto input = at::ones({2, 4}).set_requires_grad(true);
  model.learn(input.mm(module->weight.t()).sum());
  EXPECT_TRUE(at::equal(module->bias, alone->bias));
  EXPECT_FALSE(at::equal(module->weight, alone->weight));
  EXPECT_FALSE(input.grad().defined());
}

TEST_P(SharedLearn, FromAnotherModuleItCountsAsComputedFromWhatThatPulled) {
  auto bound = linear(), own = linear(), alone = linear();
  auto model = Model::create(fresh_name(), bound, torch::optim::SGDOptions(0.1), {GetParam()});
  model.pull(own);
  model.learn(bound(at::ones({1, 4})).sum());
  const auto update = model.learn(own(at::ones({1, 4})).sum(), own);
  EXPECT_EQ(update.version_read, 0);
  torch::optim::SGD optimizer(alone->parameters(), torch::optim::SGDOptions(0.1));
  for (int round = 0; round < 2; ++round) {
    optimizer.zero_grad();
    alone(at::ones({1, 4})).sum().backward();
    optimizer.step();
  }
  expect_equal(bound, alone);  // A sum's gradient does not depend on the parameters.
}

TEST_P(SharedLearn, RefusesWhatIsNoLossAndChangesNothing) {
  auto module = linear(), before = linear();
  auto model = Model::create(fresh_name(), module, torch::optim::SGDOptions(0.1), {GetParam()});
  const auto refuse = [&](const Tensor& loss) { return message_of<Error>([&] { model.learn(loss); }); };
  EXPECT_THAT(refuse(Tensor()), HasSubstr("learn: the loss does not require a gradient"));
  EXPECT_THAT(refuse(at::ones({})), HasSubstr("learn: the loss does not require a gradient"));
  EXPECT_THAT(refuse(module(at::ones({2, 4}))), HasSubstr("learn: the loss is no scalar but has 6 elements"));
  expect_equal(module, before);
  EXPECT_EQ(model.version(), 0);
}

TEST_P(SharedLearn, RefusesACallOfAContext) {
  auto module = linear(), before = linear();
  auto model = Model::create(fresh_name(), module, torch::optim::SGDOptions(0.1), {GetParam()});
  spawn_threads(1, [&](Worker& worker) {
    Context context(worker);
    const auto y = worker.rpc_sync<twice>(0, module(at::ones({1, 4})));
    EXPECT_THAT(message_of<Error>([&] { model.learn(y.sum()); }), HasSubstr("call"));
  });
  expect_equal(module, before);
  EXPECT_EQ(model.version(), 0);
}

INSTANTIATE_TEST_SUITE_P(Policies, SharedLearn, testing::Values(Policy::Locked, Policy::Hogwild),
                         [](const auto& param) { return param.param == Policy::Locked ? "Locked" : "Hogwild"; });

}  // namespace
}  // namespace farad::shared
