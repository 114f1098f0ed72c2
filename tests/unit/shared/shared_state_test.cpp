// What a model in shared memory keeps beside its parameters: a moving average, checkpoints, seeds, who watches it.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "temporary_directory.h"
#include "unit/shared/models.h"

namespace farad::shared {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SharedState : public testing::TestWithParam<Policy> {
 protected:
  static void step(Model& model, Linear& module, int round) {
    set_gradients(module, round);
    model.step();
  }
};

TEST_P(SharedState, MovingAverageFollowsEachUpdateFromTheFirstValuesOn) {
  Linear bound = linear(), other = linear(), evaluated = linear(), expected = linear();
  const auto name = fresh_name();
  auto model =
      Model::create(name, bound, torch::optim::AdamOptions(0.1), {.policy = GetParam(), .moving_average = 0.9});
  auto second = Model::attach(name, other);
  EXPECT_EQ(model.pull_average(evaluated), 0u);
  expect_equal(evaluated, linear());
  for (int round = 0; round < 4; ++round) {
    step(round % 2 == 0 ? model : second, round % 2 == 0 ? bound : other, round);
    const at::NoGradGuard no_grad;
    expected->weight.mul_(0.9).add_(bound->weight, 1 - 0.9);
    expected->bias.mul_(0.9).add_(bound->bias, 1 - 0.9);
    EXPECT_EQ(second.pull_average(evaluated), static_cast<uint64_t>(round) + 1);
    expect_equal(evaluated, expected);
  }
  const auto snapshot = model.snapshot();
  ASSERT_EQ(snapshot.average.size(), 2u);
  EXPECT_TRUE(at::equal(snapshot.average[0].second, expected->weight));
}

TEST_P(SharedState, AModelWithoutMovingAverageSaysSo) {
  Linear bound = linear(), other = linear();
  auto model = Model::create(fresh_name(), bound, torch::optim::SGDOptions(0.1), {GetParam()});
  EXPECT_THAT(message_of<farad::Error>([&] { model.pull_average(other); }), HasSubstr("Options::moving_average"));
  EXPECT_THAT(message_of<farad::Error>([&] { Model::create(fresh_name(), other, {.moving_average = 1}); }),
              HasSubstr("less than 1"));
}

TEST_P(SharedState, ObserverSeesEachUpdateOfItsProcessWithTheGradientsUsed) {
  std::vector<Update> updates;
  std::vector<at::Tensor> weights, gradients;
  Linear bound = linear(), other = linear();
  Options watched{GetParam()};
  watched.observer = [&](const Update& update, const std::vector<at::Tensor>& used) {
    updates.push_back(update);
    gradients.push_back(used[0].clone());
    weights.push_back(bound->weight.detach().clone());
  };
  const auto name = fresh_name();
  auto model = Model::create(name, bound, torch::optim::SGDOptions(0.5), watched);
  auto unwatched = Model::attach(name, other);
  step(model, bound, 0);
  step(unwatched, other, 1);
  step(model, bound, 2);
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_EQ(updates[0].version, 1u);
  EXPECT_EQ(updates[1].version, 3u);
  EXPECT_EQ(updates[1].sequence, 2u);
  EXPECT_TRUE(at::equal(gradients[1], bound->weight.grad()));
  EXPECT_TRUE(at::equal(weights[1], bound->weight)) << "it is told once the values are there";
}

TEST(SharedObserver, UndoesAnUpdateUnderLockedByAnExceptionAndWhatTheOptimizerRemembersOfIt) {
  Linear bound = linear(), undisturbed = linear();
  bool fails = false;
  const auto adam = torch::optim::AdamOptions(0.5).amsgrad(true);
  auto twin = Model::create(fresh_name(), undisturbed, adam);
  auto model = Model::create(fresh_name(), bound, adam, {.observer = [&](const Update&, const auto&) {
                               if (fails) throw std::runtime_error("no room");
                             }});
  for (int round = 0; round < 3; ++round) {  // With the first of them, all that the optimizer remembers begins.
    fails = true;
    set_gradients(bound, 10 + round);
    EXPECT_THROW(model.step(), std::runtime_error);
    EXPECT_EQ(model.version(), static_cast<uint64_t>(round));
    expect_equal(bound, undisturbed);
    fails = false;
    set_gradients(bound, round);
    set_gradients(undisturbed, round);
    model.step();
    twin.step();
    expect_equal(bound, undisturbed);
  }
}

TEST(SharedObserver, OfOneThatWritesWithoutALockMayLookAndIsToldThatItIsTorn) {
  Linear bound = linear(), other = linear();
  const auto name = fresh_name();
  std::optional<Model> looking;
  Model::Snapshot seen;
  auto model = Model::create(
      name, bound, torch::optim::SGDOptions(0.5),
      {.policy = Policy::Hogwild, .observer = [&](const Update&, const auto&) { seen = looking->snapshot(); }});
  looking.emplace(Model::attach(name, other));
  set_gradients(bound, 0);
  model.step();
  EXPECT_TRUE(seen.torn);
  EXPECT_TRUE(at::equal(seen.tensors[0].second, bound->weight)) << "what is there is copied all the same";
  EXPECT_EQ(model.stats().snapshots_torn, 1u);
}

TEST_P(SharedState, LearningRateThatIsNoneIsRefused) {
  Linear module = linear();
  auto model = Model::create(fresh_name(), module, torch::optim::SGDOptions(0.5), {GetParam()});
  for (const double lr : {-1.0, std::numeric_limits<double>::quiet_NaN()}) EXPECT_THROW(model.set_lr(lr), c10::Error);
  EXPECT_EQ(model.lr(), 0.5);
}

TEST_P(SharedState, TrainingGoesOnFromACheckpointToTheBit) {
  const test::TemporaryDirectory directory;
  const auto options = torch::optim::AdamOptions(0.1).amsgrad(true);
  Linear first = linear(), second(4, 3), averages[] = {linear(), linear()};
  auto uninterrupted = Model::create(fresh_name(), first, options, {.policy = GetParam(), .moving_average = 0.5});
  auto resumed = Model::create(fresh_name(), second, options, {.policy = GetParam(), .moving_average = 0.5});
  for (int round = 0; round < 3; ++round) step(uninterrupted, first, round);
  uninterrupted.set_lr(0.05);
  uninterrupted.save(directory.path());
  resumed.load(directory.path());
  EXPECT_EQ(resumed.version(), 3u);
  EXPECT_EQ(resumed.lr(), 0.05);
  expect_equal(first, second);
  for (int round = 3; round < 6; ++round) {
    step(uninterrupted, first, round);
    step(resumed, second, round);
    expect_equal(first, second);
  }
  EXPECT_EQ(uninterrupted.pull_average(averages[0]), resumed.pull_average(averages[1]));
  expect_equal(averages[0], averages[1]);
  EXPECT_EQ(resumed.history().size(), 3u);
}

TEST_P(SharedState, ACheckpointBeforeTheFirstStepIsOneToo) {
  const test::TemporaryDirectory directory;
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9).dampening(0.5);
  Linear first = linear(), second(4, 3);
  auto uninterrupted = Model::create(fresh_name(), first, options, {GetParam()});
  uninterrupted.save(directory.path());
  auto resumed = Model::create(fresh_name(), second, options, {GetParam()});
  set_gradients(second, 7);
  resumed.step();
  resumed.load(directory.path());
  for (int round = 0; round < 2; ++round) {
    step(uninterrupted, first, round);
    step(resumed, second, round);
  }
  expect_equal(first, second);
}

TEST_P(SharedState, ACheckpointThatDoesNotFitIsRefusedByNameAndChangesNothing) {
  const test::TemporaryDirectory directory;
  Linear saved = linear(), larger(5, 3), same = linear(), another = linear();
  const auto adam = torch::optim::AdamOptions(0.1);
  Model::create(fresh_name(), saved, adam, {GetParam()}).save(directory.path());
  const auto loading = [&](Linear& module, const auto& options, double average = 0) {
    auto model = Model::create(fresh_name(), module, options, {.policy = GetParam(), .moving_average = average});
    const auto before = module->weight.detach().clone();
    auto message = message_of<Error>([&] { model.load(directory.path()); });
    EXPECT_TRUE(at::equal(module->weight, before));
    return message;
  };
  EXPECT_THAT(loading(larger, adam), AllOf(HasSubstr("value.weight"), HasSubstr("[3, 4]"), HasSubstr("[3, 5]")));
  EXPECT_THAT(loading(same, torch::optim::SGDOptions(0.1)), AllOf(HasSubstr("Adam"), HasSubstr("SGD")));
  EXPECT_THAT(loading(same, torch::optim::AdamOptions(0.1).eps(1e-4)), AllOf(HasSubstr("eps"), HasSubstr("0.0001")));
  EXPECT_THAT(loading(another, adam, 0.5), HasSubstr("moving_average"));
  Linear module = linear();
  auto model = Model::create(fresh_name(), module, adam, {GetParam()});
  EXPECT_THAT(message_of<Error>([&] { model.load(directory.file("nothing")); }), HasSubstr("nothing"));
}

INSTANTIATE_TEST_SUITE_P(Each, SharedState, testing::Values(Policy::Locked, Policy::Hogwild),
                         [](const auto& info) { return info.param == Policy::Locked ? "Locked" : "Hogwild"; });

TEST(SharedSeeds, OfAllWorkersOfManySeedsDifferInHalfOfTheirBits) {
  std::set<uint64_t> seen;
  double flipped = 0;
  int pairs = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (uint64_t worker = 0; worker < 64; ++worker) {
      const auto mine = stream_seed(seed, worker);
      EXPECT_TRUE(seen.insert(mine).second) << "worker " << worker << " of seed " << seed;
      flipped += __builtin_popcountll(mine ^ stream_seed(seed, worker + 1));
      flipped += __builtin_popcountll(mine ^ stream_seed(seed + 1, worker));
      pairs += 2;
    }
  }
  EXPECT_NEAR(flipped / pairs, 32, 0.5);
}

TEST(SharedSeeds, OfOneSeedDifferInTheHalfThatLibtorchUses) {
  std::set<uint32_t> seen;
  for (uint64_t stream = 0; stream < 300'000; ++stream) {
    seen.insert(static_cast<uint32_t>(stream_seed(7, stream)));
  }
  EXPECT_EQ(seen.size(), 300'000u) << "of random ones ten would be there twice";
}

TEST(SharedSeeds, WhoTakesTheSeatOfAnotherDrawsOtherNumbers) {
  const auto name = fresh_name();
  Linear one = linear(), two = linear(), three = linear(), four = linear();
  const auto first = Model::create(name, one);
  auto second = std::make_unique<Model>(Model::attach(name, two));
  const int seat = second->worker();
  const auto stream = second->stream();
  EXPECT_EQ(first.stream(), 0u);
  EXPECT_EQ(stream, 1u);
  second.reset();
  const auto successor = Model::attach(name, three);
  EXPECT_EQ(successor.worker(), seat);
  EXPECT_EQ(successor.stream(), 2u);
  EXPECT_EQ(Model::attach(name, four, {.read_only = true}).stream(), 3u);
  const auto drawn = [](uint64_t of) {
    at::manual_seed(stream_seed(1, of));
    return at::randn({4});
  };
  EXPECT_FALSE(at::equal(drawn(stream), drawn(successor.stream())));
}

class SharedPolicies : public testing::TestWithParam<Policy> {};

TEST_P(SharedPolicies, AModelOfEachIsSavedAndGoesOn) {
  const test::TemporaryDirectory directory;
  Linear module = linear(), again(4, 3);
  const Options options{.policy = GetParam(), .average_every = 1};
  auto model = Model::create(fresh_name(), module, torch::optim::SGDOptions(0.5), options);
  const auto step = [](Model& one) {
    one.step({at::ones({3, 4}), at::ones({3})});
    if (one.policy() == Policy::Managed) one.manage(std::chrono::seconds(10));
  };
  step(model);
  model.save(directory.path());
  auto other = Model::create(fresh_name(), again, torch::optim::SGDOptions(0.5), options);
  other.load(directory.path());
  step(model);
  step(other);
  EXPECT_EQ(other.version(), 2u);
  expect_equal(module, again);
  EXPECT_TRUE(at::equal(module->weight, linear()->weight - 1));
}

INSTANTIATE_TEST_SUITE_P(Each, SharedPolicies,
                         testing::Values(Policy::Locked, Policy::Hogwild, Policy::AllReduced, Policy::Managed,
                                         Policy::Averaged));

}  // namespace
}  // namespace farad::shared
