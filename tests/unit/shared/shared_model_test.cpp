// A model in shared memory, within one process: what it gives is what one optimizer of libtorch gives.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "unit/shared/models.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;

/// Two workers in turns, each with a module and an optimizer of its own, beside one process with libtorch's.
template <class Optimizer, class Options>
void expect_parity(const Options& options, Policy policy) {
  Linear one = linear(), other = linear(), alone = linear();
  const auto name = fresh_name();
  auto first = Model::create(name, one, options, {policy});
  auto second = Model::attach(name, other);
  Optimizer optimizer(alone->parameters(), options);
  for (int round = 0; round < 6; ++round) {
    auto& model = round % 3 == 1 ? second : first;
    auto& module = round % 3 == 1 ? other : one;
    set_gradients(module, round);
    set_gradients(alone, round);
    if (round == 2) {  // One that a pass did not reach.
      module->bias.mutable_grad() = Tensor();
      alone->bias.mutable_grad() = Tensor();
    }
    EXPECT_EQ(model.step().version, static_cast<uint64_t>(round) + 1);
    optimizer.step();
    expect_equal(one, alone);
    expect_equal(other, alone);
  }
}

class SharedModel : public testing::TestWithParam<Policy> {};

TEST_P(SharedModel, TwoWorkersHaveOneOptimizerStateLikeOneProcess) {
  namespace o = torch::optim;
  expect_parity<o::SGD>(o::SGDOptions(0.1).momentum(0.9).dampening(0.1).weight_decay(0.01), GetParam());
  expect_parity<o::SGD>(o::SGDOptions(0.1), GetParam());
  expect_parity<o::Adam>(o::AdamOptions(0.1).amsgrad(true), GetParam());
  expect_parity<o::AdamW>(o::AdamWOptions(0.1), GetParam());
  expect_parity<o::RMSprop>(o::RMSpropOptions(0.1).momentum(0.5).centered(true), GetParam());
  expect_parity<o::Adagrad>(o::AdagradOptions(0.1), GetParam());
}

/// With tensors of any size, so that where one ends and the next begins makes no difference.
template <class Optimizer, class Options>
void expect_the_same_to_the_bit(const Options& options, Policy policy) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t width : {1, 7, 33, 301}) {
      Linear bound(width, width), alone(width, width);
      bound->to(type);
      alone->to(type);
      auto model = Model::create(fresh_name(), bound, options, {policy});
      model.pull(alone);
      Optimizer optimizer(alone->parameters(), options);
      for (const bool transposed : {false, true, false}) {
        const auto weight = at::randn({width, width}).to(type);
        alone->weight.mutable_grad() = bound->weight.mutable_grad() = transposed ? weight.t() : weight;
        alone->bias.mutable_grad() = bound->bias.mutable_grad() = at::randn({width}).to(type);
        model.step();
        optimizer.step();
        expect_equal(bound, alone);
      }
    }
  }
}

TEST_P(SharedModel, AStepIsThatOfLibtorchToTheBitWhateverTypeSizeAndLayout) {
  namespace o = torch::optim;
  expect_the_same_to_the_bit<o::SGD>(o::SGDOptions(0.3), GetParam());
  expect_the_same_to_the_bit<o::SGD>(o::SGDOptions(0.3).momentum(0.9).weight_decay(0.01), GetParam());
  expect_the_same_to_the_bit<o::Adam>(o::AdamOptions(0.1), GetParam());
  expect_the_same_to_the_bit<o::RMSprop>(o::RMSpropOptions(0.01), GetParam());
  expect_the_same_to_the_bit<o::Adagrad>(o::AdagradOptions(0.1), GetParam());
}

TEST_P(SharedModel, StepsByWhatWasPulledOnceAreAllOfThatVersion) {
  Linear bound = linear(), own = linear();
  auto model = Model::create(fresh_name(), bound, torch::optim::SGDOptions(0.1), {GetParam()});
  model.pull(own);
  for (uint64_t round = 0; round < 3; ++round) {
    set_gradients(own, 0);
    EXPECT_EQ(model.step(own).version_read, 0u);
  }
  EXPECT_EQ(model.stats().max_staleness, 2u);
}

TEST_P(SharedModel, UpdatesTellWhatTheyWereComputedFromAndWhatTheyMade) {
  Linear bound = linear(), other = linear(), own = linear();
  const auto name = fresh_name();
  auto model = Model::create(name, bound, torch::optim::SGDOptions(0.1), {GetParam()});
  auto second = Model::attach(name, other);
  EXPECT_EQ(second.pull(own), 0u);
  for (int round = 0; round < 3; ++round) {
    set_gradients(bound, round);
    EXPECT_EQ(model.step().staleness(), 0u);
  }
  set_gradients(own, 3);
  const auto late = second.step(own);
  EXPECT_EQ(late.version_read, 0u);
  EXPECT_EQ(late.version, 4u);
  EXPECT_EQ(late.staleness(), 3u);
  EXPECT_EQ(late.sequence, 1u);
  EXPECT_EQ(second.pull(own), 4u);
  expect_equal(own, bound);

  const auto stats = model.stats();
  EXPECT_EQ(stats.version, 4u);
  EXPECT_EQ(stats.max_staleness, 3u);
  EXPECT_DOUBLE_EQ(stats.mean_staleness, 0.75);
  ASSERT_EQ(stats.workers.size(), 2u);
  EXPECT_EQ(stats.workers[0].applied, 3u);
  EXPECT_EQ(stats.workers[1].applied, 1u);
  const auto history = model.history();
  ASSERT_EQ(history.size(), 4u);
  EXPECT_EQ(history[2].version, 3u);
  EXPECT_EQ(history[3].worker, second.worker());
}

/// One weight under two names.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    weight = register_parameter("weight", at::ones({2, 2}));
    again = register_parameter("again", weight);
  }
  Tensor weight, again;
};

TEST_P(SharedModel, AParameterOfTwoNamesIsOne) {
  TiedImpl bound, own;
  auto model = Model::create(fresh_name(), bound, torch::optim::SGDOptions(1), {GetParam()});
  model.pull(own);
  (own.weight * own.again).sum().backward();
  model.step(own);
  EXPECT_TRUE(at::equal(bound.weight, at::full({2, 2}, -1.0))) << bound.weight;
  EXPECT_TRUE(at::equal(bound.again, bound.weight));
}

/// With its parameters where they are told to be.
struct PlacedImpl : torch::nn::Module {
  PlacedImpl(const Tensor& weight, const Tensor& bias) {
    register_parameter("weight", weight);
    register_parameter("bias", bias);
  }
};

TEST_P(SharedModel, AModuleThatDoesNotLieInOnePieceIsPulledInto) {
  Linear bound = linear();
  auto model = Model::create(fresh_name(), bound, torch::optim::SGDOptions(1), {GetParam()});
  const auto weight = at::zeros({4, 3}).t(), bias = at::zeros({6}).slice(0, 0, 6, 2);
  PlacedImpl scattered(weight, bias);
  model.pull(scattered);
  EXPECT_TRUE(at::equal(weight, bound->weight));
  EXPECT_TRUE(at::equal(bias, bound->bias));
}

TEST_P(SharedModel, AModuleWithoutMemoryIsNotPulledInto) {
  Linear bound = linear();
  auto model = Model::create(fresh_name(), bound, torch::optim::SGDOptions(1), {GetParam()});
  PlacedImpl nowhere(at::empty({3, 4}), at::empty({3}, at::kMeta));
  EXPECT_THAT(message_of<farad::Error>([&] { model.pull(nowhere); }),
              AllOf(HasSubstr("\"bias\""), HasSubstr("no memory")));
}

TEST_P(SharedModel, SnapshotIsACopyThatStays) {
  Linear module = linear();
  const auto before = module->weight.detach().clone();
  auto model = Model::create(fresh_name(), module, torch::optim::SGDOptions(0.1), {GetParam()});
  const auto snapshot = model.snapshot();
  set_gradients(module, 0);
  model.step();
  EXPECT_EQ(snapshot.version, 0u);
  EXPECT_FALSE(snapshot.torn);
  EXPECT_EQ(snapshot.tensors[0].first, "weight");
  EXPECT_TRUE(at::equal(snapshot.tensors[0].second, before));
  EXPECT_FALSE(at::equal(module->weight, before));
}

TEST_P(SharedModel, BuffersAreSharedToo) {
  torch::nn::BatchNorm1d one(4), other(4), own(4);
  const auto name = fresh_name();
  auto model = Model::create(name, one, torch::optim::SGDOptions(0.1), {GetParam()});
  auto second = Model::attach(name, other);
  one->forward(at::randn({8, 4}));  // which moves what it remembers of its inputs
  EXPECT_FALSE(at::equal(one->running_mean, at::zeros({4})));
  EXPECT_TRUE(at::equal(other->running_mean, one->running_mean));
  EXPECT_EQ(other->num_batches_tracked.item<int64_t>(), 1);
  second.pull(own);
  EXPECT_TRUE(at::equal(own->running_var, one->running_var));
  const auto snapshot = second.snapshot();
  EXPECT_EQ(snapshot.tensors.size(), 5u);
  EXPECT_EQ(snapshot.tensors[2].first, "running_mean");
  EXPECT_TRUE(at::equal(snapshot.tensors[2].second, one->running_mean));
}

TEST_P(SharedModel, WhoDetachesKeepsTheValuesOfThenAndNothingElse) {
  Linear bound = linear(), left = linear();
  const auto name = fresh_name();
  auto model = Model::create(name, bound, torch::optim::SGDOptions(0.1), {GetParam()});
  auto leaving = Model::attach(name, left);
  set_gradients(bound, 0);
  model.step();
  leaving.detach();
  expect_equal(left, bound);
  const auto then = left->weight.detach().clone();
  model.step();
  EXPECT_TRUE(at::equal(left->weight, then));
  EXPECT_FALSE(at::equal(bound->weight, then));
  EXPECT_THAT(message_of<farad::Error>([&] { leaving.step(); }), HasSubstr("detached"));
  EXPECT_FALSE(model.stats().workers[1].alive);
}

TEST_P(SharedModel, ANameThatNoModelCanHaveIsRefused) {
  Linear module = linear();
  for (const size_t size : {0, 96, 300}) {
    const auto create = [&] { (void)Model::create(std::string(size, 'x'), module, {GetParam()}); };
    EXPECT_THAT(message_of<farad::Error>(create), HasSubstr("cannot be the name of a model"));
  }
}

TEST_P(SharedModel, AGradientThatDoesNotFitChangesNothing) {
  Linear module = linear();
  auto model = Model::create(fresh_name(), module, torch::optim::SGDOptions(0.1), {GetParam()});
  const auto before = module->weight.detach().clone();
  EXPECT_THAT(message_of<farad::Error>([&] { model.step({at::ones({4, 3}), at::ones({3})}); }),
              AllOf(HasSubstr("weight"), HasSubstr("[4, 3]"), HasSubstr("[3, 4]")));
  EXPECT_TRUE(at::equal(module->weight, before));
  EXPECT_EQ(model.version(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Each, SharedModel, testing::Values(Policy::Locked, Policy::Hogwild),
                         [](const auto& info) { return info.param == Policy::Locked ? "Locked" : "Hogwild"; });

TEST(SharedModelThreads, WhoeverNeedsAnUpdateToEndWaitsNoLongerThanItsPatience) {
  const auto name = fresh_name();
  Linear bound = linear(), other = linear(), own = linear();
  std::promise<void> within, go_on;
  auto slow = Model::create(name, bound, torch::optim::SGDOptions(1), {.observer = [&](const Update&, const auto&) {
                              within.set_value();
                              go_on.get_future().wait();
                            }});
  auto model = Model::attach(name, other, {.patience = 30ms});
  std::thread stepping([&] { slow.step({at::ones({3, 4}), at::ones({3})}); });
  within.get_future().wait();
  EXPECT_THROW(model.snapshot(), Timeout);
  EXPECT_THROW(model.pull(own), Timeout);
  EXPECT_THROW(model.step({at::ones({3, 4}), at::ones({3})}), Timeout);
  expect_equal(own, linear());
  go_on.set_value();
  stepping.join();
  EXPECT_EQ(model.snapshot().version, 1u);
  const auto stats = model.stats();
  EXPECT_GT(stats.snapshot_retries, 0u);
  EXPECT_EQ(stats.rejected, 1u);
  EXPECT_EQ(stats.version, 1u);
}

TEST(SharedModelThreads, SnapshotsWhileOthersStepAreOfOneVersion) {
  // Each step adds one to each element, so all elements of a snapshot are the version.
  const auto name = fresh_name();
  Linear module(64, 64);
  for (auto& parameter : module->parameters()) parameter.detach().zero_();
  auto model = Model::create(name, module, torch::optim::SGDOptions(1));
  constexpr int steps = 300;
  std::thread stepping([&] {
    Linear mine(64, 64);
    auto here = Model::attach(name, mine);
    for (int i = 0; i < steps; ++i) here.step({at::full({64, 64}, -1.0), at::full({64}, -1.0)});
  });
  for (uint64_t version = 0; version < steps;) {
    const auto snapshot = model.snapshot();
    version = snapshot.version;
    for (const auto& [name, tensor] : snapshot.tensors) {
      ASSERT_TRUE(at::all(tensor == static_cast<double>(version)).item<bool>()) << name << " at version " << version;
    }
  }
  stepping.join();
  EXPECT_EQ(model.stats().version, static_cast<uint64_t>(steps));
}

}  // namespace
}  // namespace farad::shared
