// The policies under which several processes make one update, or average copies; in threads of one process.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "temporary_directory.h"
#include "unit/shared/models.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using Gradients = std::vector<Tensor>;

/// Of a member in a round; the same each time.
Gradients gradients_of(int member, int round) {
  Linear module = linear();
  set_gradients(module, 1000 * member + round);
  return {module->weight.grad(), module->bias.grad()};
}

constexpr double samples_of[] = {3, 1, 5};

/// The gradient of the mean over all samples of these members, summed in their order.
Gradients mean_of(const std::vector<Gradients>& all, const std::vector<double>& samples) {
  double total = 0;
  for (const double n : samples) total += n;
  Gradients mean;
  for (size_t i = 0; i < all[0].size(); ++i) {
    mean.push_back(all[0][i] * (samples[0] / total));
    for (size_t member = 1; member < all.size(); ++member) mean[i].add_(all[member][i], samples[member] / total);
  }
  return mean;
}

/// What members do at once, each in a thread of its own with a model of its own; seats are taken in their order.
void together(const std::string& name, int members, const Options& options,
              const std::function<void(int member, Model&, Linear&)>& act) {
  std::vector<Linear> modules;
  std::vector<Model> models;
  for (int i = 0; i < members; ++i) modules.push_back(linear());
  for (int i = 0; i < members; ++i) models.push_back(Model::attach(name, modules[static_cast<size_t>(i)], options));
  std::vector<std::thread> threads;
  for (int i = 0; i < members; ++i) {
    threads.emplace_back([&, i] { act(i, models[static_cast<size_t>(i)], modules[static_cast<size_t>(i)]); });
  }
  for (auto& thread : threads) thread.join();
}

// --- AllReduced ---

TEST(SharedAllReduced, EachUpdateIsByTheMeanOverAllSamplesToTheBit) {
  constexpr int members = 3, rounds = 5;
  std::vector<std::vector<Gradients>> all(rounds);
  for (int round = 0; round < rounds; ++round) {
    for (int member = 0; member < members; ++member) {
      all[static_cast<size_t>(round)].push_back(gradients_of(member, round));
    }
  }
  Linear bound = linear(), alone = linear();
  const auto options = torch::optim::AdamOptions(0.1);
  const auto name = fresh_name();
  auto model = Model::create(name, bound, options, {.policy = Policy::AllReduced, .members = members});
  together(name, members, {}, [&](int member, Model& mine, Linear&) {
    for (size_t round = 0; round < rounds; ++round) {
      const auto update = mine.step(all[round][static_cast<size_t>(member)], samples_of[member]);
      EXPECT_EQ(update.version, round + 1);
      EXPECT_EQ(update.staleness(), 0u);
    }
  });
  torch::optim::Adam optimizer(alone->parameters(), options);
  for (const auto& round : all) {
    const auto mean = mean_of(round, {samples_of, samples_of + members});
    alone->weight.mutable_grad() = mean[0];
    alone->bias.mutable_grad() = mean[1];
    optimizer.step();
  }
  expect_equal(bound, alone);
  EXPECT_EQ(model.version(), static_cast<uint64_t>(rounds));
  const auto stats = model.stats();
  for (const auto& worker : stats.workers) EXPECT_EQ(worker.applied, worker.worker == 0 ? 0u : 5u);
  EXPECT_EQ(stats.lost, 0u);
}

TEST(SharedAllReduced, AParameterThatOnlySomeHaveAGradientOfCountsAsZeroForTheOthers) {
  Linear bound = linear();
  const auto name = fresh_name();
  auto model = Model::create(name, bound, torch::optim::SGDOptions(1), {.policy = Policy::AllReduced, .members = 2});
  const auto before = linear();
  together(name, 2, {},
           [&](int member, Model& mine, Linear&) { mine.step({Tensor(), member == 0 ? at::ones({3}) : Tensor()}); });
  EXPECT_TRUE(at::equal(bound->weight, before->weight));
  EXPECT_TRUE(at::equal(bound->bias, before->bias - 0.5));
}

TEST(SharedAllReduced, WhoWaitsInVainIsToldAndNothingIsChanged) {
  Linear bound = linear(), other = linear();
  const auto name = fresh_name();
  auto first = Model::create(name, bound, torch::optim::SGDOptions(1),
                             {.policy = Policy::AllReduced, .patience = 30ms, .members = 2});
  EXPECT_THAT(message_of<Timeout>([&] { first.step(gradients_of(0, 0)); }), HasSubstr("waited for 1 new member"));
  expect_equal(bound, linear());
  auto second = Model::attach(name, other);
  std::thread later([&] { second.step(gradients_of(1, 0)); });
  std::optional<Update> update;
  for (int tries = 0; tries < 1000 && !update; ++tries) {
    try {
      update = first.step(gradients_of(0, 0));
    } catch (const Timeout&) {
    }
  }
  later.join();
  ASSERT_TRUE(update);
  EXPECT_EQ(update->version, 1u);
  EXPECT_GE(first.stats().rejected, 1u);
  EXPECT_THAT(message_of<Timeout>([&] { first.step(gradients_of(0, 1)); }), HasSubstr("worker 1"));
}

TEST(SharedAllReduced, WhoLeavesIsNotWaitedFor) {
  Linear bound = linear();
  const auto name = fresh_name();
  auto model = Model::create(name, bound, torch::optim::SGDOptions(1), {.policy = Policy::AllReduced, .members = 3});
  std::atomic<int> steps = 0;
  together(name, 3, {}, [&](int member, Model& mine, Linear&) {
    for (int round = 0; round <= member; ++round, ++steps) mine.step({at::ones({3, 4}), at::ones({3})});
    mine.detach();
  });
  EXPECT_EQ(model.version(), 3u);
  EXPECT_EQ(steps, 6);
}

TEST(SharedAllReduced, WhatFailsInOneProcessFailsInAll) {
  Linear bound = linear();
  const auto name = fresh_name();
  auto model = Model::create(name, bound, torch::optim::SGDOptions(1), {.policy = Policy::AllReduced, .members = 2});
  std::atomic<int> threw = 0, told = 0;
  const Observer observer = [](const Update&, const Gradients&) { throw std::runtime_error("no room"); };
  together(name, 2, {.observer = observer}, [&](int, Model& mine, Linear&) {
    try {
      mine.step({at::ones({3, 4}), at::ones({3})});
    } catch (const Aborted&) {
      ++told;
    } catch (const std::runtime_error&) {
      ++threw;
    }
  });
  EXPECT_EQ(threw, 1);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(model.version(), 0u);
  expect_equal(bound, linear());
}

TEST(SharedAllReduced, ObserverIsToldOfTheMeanAndOfWhatItIsMadeOf) {
  Linear bound = linear();
  const auto name = fresh_name();
  std::vector<Update> updates;
  Gradients seen;
  const Observer observer = [&](const Update& update, const Gradients& gradients) {  // Under the lock.
    updates.push_back(update);
    for (const auto& one : gradients) seen.push_back(one.clone());
  };
  auto model = Model::create(name, bound, torch::optim::SGDOptions(1), {.policy = Policy::AllReduced, .members = 2});
  const std::vector<Gradients> given{gradients_of(0, 0), gradients_of(1, 0)};
  together(name, 2, {.observer = observer}, [&](int member, Model& mine, Linear&) {
    mine.step(given[static_cast<size_t>(member)], samples_of[member]);
  });
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].version, 1u);
  ASSERT_EQ(updates[0].contributions.size(), 2u);
  EXPECT_EQ(updates[0].contributions[0].worker, 1);
  EXPECT_EQ(updates[0].contributions[1].worker, 2);
  EXPECT_EQ(updates[0].contributions[1].samples, 1);
  EXPECT_TRUE(at::equal(seen[0], mean_of(given, {3, 1})[0]));
}

// --- Managed ---

class SharedManaged : public testing::Test {
 protected:
  Model create(Options options) {
    options.policy = Policy::Managed;
    return Model::create(name, bound, torch::optim::SGDOptions(1), std::move(options));
  }
  const std::string name = fresh_name();
  Linear bound = linear(), other = linear(), third = linear();
};

TEST_F(SharedManaged, TheManagerAppliesTheMeanOfSoManyGradientsAtOnce) {
  std::vector<Update> updates;
  auto manager = create({.gather = 2, .gather_within = 10s, .observer = [&](const Update& update, const Gradients&) {
                           updates.push_back(update);
                         }});
  auto worker = Model::attach(name, other);
  const std::vector<Gradients> given{gradients_of(0, 0), gradients_of(1, 0)};
  const auto update = worker.step(given[0], 3);
  EXPECT_EQ(update.version, 0u) << "nobody knows yet";
  EXPECT_EQ(update.sequence, 1u);
  worker.step(given[1], 1);
  EXPECT_EQ(manager.stats().waiting, 2u);
  EXPECT_EQ(manager.manage(10s), 2u);
  const auto mean = mean_of(given, {3, 1});
  EXPECT_TRUE(at::equal(bound->weight, linear()->weight - mean[0]));
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].contributions[1].sequence, 2u);
  EXPECT_EQ(updates[0].contributions[0].samples, 3);
  EXPECT_EQ(manager.stats().waiting, 0u);
  EXPECT_EQ(manager.stats().workers[1].applied, 2u);
}

TEST_F(SharedManaged, WhatCameWithinATimeIsAppliedIfItIsLess) {
  auto manager = create({.gather = 5, .gather_within = 1ms});
  auto worker = Model::attach(name, other);
  EXPECT_EQ(manager.manage(0ms), 0u);
  worker.step(gradients_of(0, 0));
  EXPECT_EQ(manager.manage(10s), 1u);
  EXPECT_EQ(manager.version(), 1u);
}

TEST_F(SharedManaged, StalenessIsWhatTheModelMovedOnSinceTheWorkerPulled) {
  auto manager = create({});
  auto worker = Model::attach(name, other);
  worker.pull(third);
  worker.step(gradients_of(0, 0));
  worker.step(gradients_of(0, 1));
  EXPECT_EQ(manager.manage(10s), 1u);
  EXPECT_EQ(manager.manage(10s), 1u);
  EXPECT_EQ(manager.stats().max_staleness, 1u);
}

TEST_F(SharedManaged, AWorkerWithoutRoomWaitsAndIsToldWhoDidNotComeForIt) {
  auto manager = create({.queue = 1});
  auto worker = Model::attach(name, other, {.patience = 20ms});
  worker.step(gradients_of(0, 0));
  EXPECT_THAT(message_of<Timeout>([&] { worker.step(gradients_of(0, 1)); }), HasSubstr("call manage()"));
  EXPECT_EQ(manager.manage(10s), 1u);
  worker.step(gradients_of(0, 2));
  EXPECT_THAT(message_of<Timeout>([&] { worker.settle(); }), HasSubstr("worker 0 manages"));
  EXPECT_EQ(manager.stats().rejected, 1u);
}

TEST_F(SharedManaged, ThereIsOneManagerUntilItLeaves) {
  auto manager = std::make_unique<Model>(create({}));
  auto second = Model::attach(name, other);
  auto worker = Model::attach(name, third);
  EXPECT_EQ(manager->manage(1ms), 0u);
  worker.step(gradients_of(0, 0));
  EXPECT_EQ(second.manage(1ms), 0u);
  manager.reset();
  EXPECT_EQ(second.manage(10s), 1u);
}

TEST_F(SharedManaged, WithoutAManagerWhoWaitsForItDoesItsWork) {
  auto manager = std::make_unique<Model>(create({}));
  auto worker = Model::attach(name, other);
  manager->manage(1ms);
  manager.reset();
  for (int round = 0; round < 5; ++round) worker.step(gradients_of(0, round));
  worker.settle();
  EXPECT_EQ(worker.stats().workers[1].applied, 5u);
}

TEST_F(SharedManaged, ManyWorkersAreAllServed) {
  auto manager = create({.gather = 2, .gather_within = 1ms});
  std::atomic<int> done = 0;
  std::thread managing([&] {
    while (done < 3 || manager.stats().waiting > 0) manager.manage(5ms);
  });
  together(name, 3, {}, [&](int, Model& mine, Linear&) {
    for (int i = 0; i < 20; ++i) mine.step({at::ones({3, 4}), at::ones({3})});
    ++done;
  });
  managing.join();
  const auto stats = manager.stats();
  uint64_t applied = 0;
  for (const auto& worker : stats.workers) applied += worker.applied;
  EXPECT_EQ(applied, 60u);
  EXPECT_LT(stats.version, 60u) << "none were brought together";
  EXPECT_EQ(stats.lost + stats.duplicates + stats.discarded + stats.rejected, 0u);
}

TEST_F(SharedManaged, CallsOfOtherPoliciesSaySo) {
  auto manager = create({});
  EXPECT_THAT(message_of<c10::Error>([&] { manager.average(); }), HasSubstr("Policy::Averaged"));
}

// --- Averaged ---

/// Steps an optimizer of libtorch by given gradients.
void step_by(torch::optim::Optimizer& optimizer, Linear& module, const Gradients& gradients) {
  module->weight.mutable_grad() = gradients[0];
  module->bias.mutable_grad() = gradients[1];
  optimizer.step();
}

TEST(SharedAveraged, CopiesAndTheirMeanAreThoseOfOneProcessThatAveragesLikewise) {
  constexpr int members = 2, steps = 6, every = 3;
  std::vector<std::vector<Gradients>> all(members);
  for (int member = 0; member < members; ++member) {
    for (int step = 0; step < steps; ++step) all[static_cast<size_t>(member)].push_back(gradients_of(member, step));
  }
  const auto options = torch::optim::AdamOptions(0.1);
  Linear bound = linear(), copies[] = {linear(), linear()};
  const auto name = fresh_name();
  auto model = Model::create(name, bound, options, {.policy = Policy::Averaged, .members = members});
  together(name, members, {.average_every = every}, [&](int member, Model& mine, Linear& module) {
    for (size_t step = 0; step < steps; ++step) {
      const auto update = mine.step(all[static_cast<size_t>(member)][step], samples_of[member]);
      EXPECT_EQ(update.version, (step + 1) / every);
    }
    Linear pulled = linear();
    EXPECT_EQ(mine.pull(pulled), static_cast<uint64_t>(steps / every));
    expect_equal(pulled, module);
  });
  torch::optim::Adam optimizers[] = {torch::optim::Adam(copies[0]->parameters(), options),
                                     torch::optim::Adam(copies[1]->parameters(), options)};
  for (size_t step = 0; step < steps; ++step) {
    for (size_t member = 0; member < members; ++member) step_by(optimizers[member], copies[member], all[member][step]);
    if ((step + 1) % every != 0) continue;
    const at::NoGradGuard no_grad;
    const auto mean = mean_of({{copies[0]->weight.detach(), copies[0]->bias.detach()},
                               {copies[1]->weight.detach(), copies[1]->bias.detach()}},
                              {9, 3});
    for (auto& copy : copies) {
      copy->weight.copy_(mean[0]);
      copy->bias.copy_(mean[1]);
    }
  }
  Linear average = linear();
  model.pull(average);
  expect_equal(average, copies[0]);
  const auto stats = model.stats();
  EXPECT_EQ(stats.workers[1].applied, static_cast<uint64_t>(steps));
  EXPECT_EQ(stats.lost, 0u);
}

TEST(SharedAveraged, WhoIsLateIsLeftOutAndComesBackLater) {
  Linear one = linear(), two = linear();
  const auto name = fresh_name();
  auto first = Model::create(name, one, torch::optim::SGDOptions(1),
                             {.policy = Policy::Averaged, .average_every = 0, .wait_for_late = 10ms});
  auto second = Model::attach(name, two, {.average_every = 0, .wait_for_late = 10ms});
  EXPECT_EQ(first.average(), 1u);
  second.step(gradients_of(1, 0));
  EXPECT_GE(second.average(), 2u) << "without the first, which does not come";
  first.step(gradients_of(0, 0));
  EXPECT_GE(first.average(), 3u) << "without the second";
  const auto history = first.history();
  EXPECT_EQ(history.size(), first.version());
}

TEST(SharedAveraged, AnAverageOnDemandOfOneIsItsCopyAndLeavesTheOthersAlone) {
  Linear one = linear(), two = linear(), pulled = linear();
  const auto name = fresh_name();
  auto first = Model::create(name, one, torch::optim::SGDOptions(1),
                             {.policy = Policy::Averaged, .moving_average = 0.5, .average_every = 0});
  auto second = Model::attach(name, two, {.average_every = 0});
  first.step({at::ones({3, 4}), at::ones({3})});
  expect_equal(two, linear());
  first.pull(pulled);
  expect_equal(pulled, linear());
  EXPECT_EQ(first.stats().waiting, 1u);
  EXPECT_EQ(first.average(), 1u);
  second.pull(pulled);
  EXPECT_TRUE(at::equal(pulled->weight, one->weight));
  EXPECT_TRUE(at::equal(two->weight, linear()->weight));
  EXPECT_FALSE(at::equal(one->weight, two->weight));
  second.pull_average(pulled);
  EXPECT_TRUE(at::allclose(pulled->weight, linear()->weight - 0.5));
}

// --- All of them ---

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
