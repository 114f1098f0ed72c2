// What a module remembers beside its parameters, such as the statistics of a BatchNorm, under each policy.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "unit/shared/models.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using testing::HasSubstr;
using torch::nn::BatchNorm1d;

Tensor inputs(int round) {
  at::manual_seed(10 + round);
  return at::randn({8, 4}) * (round + 1) + round;
}

void backward(BatchNorm1d& module, const Tensor& x) {
  module->zero_grad();
  module->forward(x).pow(3).mean().backward();
}

/// As the guide has it, by a module of one's own.
void train(Model& model, BatchNorm1d& mine, const Tensor& x, double samples = 1) {
  model.pull(mine);
  backward(mine, x);
  model.step(mine, samples);
}

class SharedBuffers : public testing::TestWithParam<Policy> {
 protected:
  BatchNorm1d bound{4}, other{4}, mine{4}, seen{4};
  const std::string name = fresh_name();
  Model create(Options options = {}) {
    options.policy = GetParam();
    options.average_every = 1;
    return Model::create(name, bound, torch::optim::SGDOptions(0.1), std::move(options));
  }
};

TEST_P(SharedBuffers, OfAModuleThatIsPulledIntoComeBackWithItsSteps) {
  auto model = create();
  BatchNorm1d alone(4);
  for (int round = 0; round < 3; ++round) {
    train(model, mine, inputs(round));
    if (GetParam() == Policy::Managed) {
      EXPECT_EQ(model.manage(10s), 1u);
    }
    backward(alone, inputs(round));  // Whose statistics are of the inputs, whatever its parameters are.
  }
  model.pull(seen);
  EXPECT_EQ(seen->num_batches_tracked.item<int64_t>(), 3);
  EXPECT_TRUE(at::equal(seen->running_mean, alone->running_mean)) << seen->running_mean << alone->running_mean;
  EXPECT_TRUE(at::equal(seen->running_var, alone->running_var));
  EXPECT_FALSE(at::equal(seen->weight, alone->weight)) << "it was stepped too";
}

TEST_P(SharedBuffers, OfAnotherShapeAreRefusedAndChangeNothing) {
  auto model = create();
  model.pull(mine);
  backward(mine, inputs(0));
  mine->running_var.set_data(at::ones({5}));
  EXPECT_THAT(message_of<farad::Error>([&] { model.step(mine); }), HasSubstr("\"running_var\""));
  EXPECT_EQ(model.stats().workers[0].begun, 0u);
}

TEST_P(SharedBuffers, StayWhereOnlyGradientsAreGiven) {
  auto model = create();
  bound->running_mean.fill_(7);
  model.step({at::ones({4}), at::ones({4})});
  if (GetParam() == Policy::Managed) {
    EXPECT_EQ(model.manage(10s), 1u);
  }
  model.pull(seen);
  EXPECT_TRUE(at::equal(seen->running_mean, at::full({4}, 7.0)));
}

INSTANTIATE_TEST_SUITE_P(Each, SharedBuffers,
                         testing::Values(Policy::Locked, Policy::Hogwild, Policy::AllReduced, Policy::Managed,
                                         Policy::Averaged),
                         name_of_policy);

class SharedBuffersOneByOne : public SharedBuffers {};

TEST_P(SharedBuffersOneByOne, AreThoseOfTheLastUpdate) {
  auto first = create();
  auto second = Model::attach(name, other);
  BatchNorm1d theirs(4);
  first.pull(mine);
  train(second, theirs, inputs(1));
  backward(mine, inputs(0));
  first.step(mine);
  first.pull(seen);
  EXPECT_TRUE(at::equal(seen->running_mean, mine->running_mean));
  EXPECT_EQ(seen->num_batches_tracked.item<int64_t>(), 1) << "of what it pulled, one more";
}
INSTANTIATE_TEST_SUITE_P(Each, SharedBuffersOneByOne, testing::Values(Policy::Locked, Policy::Hogwild), name_of_policy);

class SharedBuffersTogether : public SharedBuffers {};

TEST_P(SharedBuffersTogether, BecomeTheMeanBySamplesOfThoseWhoBringThem) {
  auto first = create({.members = 2, .gather = 3, .gather_within = 10s});
  auto second = Model::attach(name, other, {.average_every = 1});
  BatchNorm1d theirs(4);
  std::thread stepping([&] { train(second, theirs, inputs(1), 3); });
  train(first, mine, inputs(0), 1);
  stepping.join();
  if (GetParam() == Policy::Managed) {
    second.step({at::ones({4}), at::ones({4})}, 5);  // Has no buffers, which is not to have zeros.
    EXPECT_EQ(first.manage(10s), 3u);
  }
  first.pull(seen);
  EXPECT_TRUE(at::allclose(seen->running_mean, 0.25 * mine->running_mean + 0.75 * theirs->running_mean));
  EXPECT_TRUE(at::allclose(seen->running_var, 0.25 * mine->running_var + 0.75 * theirs->running_var));
  EXPECT_EQ(seen->num_batches_tracked.item<int64_t>(), 1);
}
INSTANTIATE_TEST_SUITE_P(Each, SharedBuffersTogether,
                         testing::Values(Policy::AllReduced, Policy::Managed, Policy::Averaged), name_of_policy);

TEST(SharedBuffersUndone, AnUpdateThatIsUndoneLeavesNoBuffersEither) {
  BatchNorm1d bound(4), mine(4);
  bool refuses = true;
  auto model =
      Model::create(fresh_name(), bound, torch::optim::SGDOptions(0.1), {.observer = [&](const Update&, const auto&) {
                      EXPECT_EQ(bound->num_batches_tracked.item<int64_t>(), 1);
                      if (refuses) throw std::runtime_error("not this one");
                    }});
  EXPECT_THROW(train(model, mine, inputs(0)), std::runtime_error);
  EXPECT_EQ(bound->num_batches_tracked.item<int64_t>(), 0);
  EXPECT_TRUE(at::equal(bound->running_mean, at::zeros({4})));
  refuses = false;
  train(model, mine, inputs(0));
  EXPECT_TRUE(at::equal(bound->running_mean, mine->running_mean));
}

TEST(SharedBuffersFrozen, AParameterThatIsNotTrainedIsNoBuffer) {
  BatchNorm1d bound(4), mine(4);
  for (auto* module : {&bound, &mine}) (*module)->bias.set_requires_grad(false);
  auto model = Model::create(fresh_name(), bound, torch::optim::SGDOptions(0.1));
  model.pull(mine);
  mine->bias.fill_(3);
  backward(mine, inputs(0));
  model.step(mine);
  EXPECT_TRUE(at::equal(bound->bias, at::zeros({4})));
  EXPECT_TRUE(at::equal(bound->running_mean, mine->running_mean));
}

}  // namespace
}  // namespace farad::shared
