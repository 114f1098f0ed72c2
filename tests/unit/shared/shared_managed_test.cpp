// Gradients that a manager applies; in threads of one process.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "unit/shared/members.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

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

TEST_F(SharedManaged, WhoDoesTheManagersWorkBringsNoMoreTogetherThanItWould) {
  for (const auto& [gather, versions] : {std::pair{1, 4u}, std::pair{3, 2u}}) {
    const auto here = fresh_name();
    Linear of_manager = linear(), of_first = linear(), of_second = linear();
    auto manager = Model::create(here, of_manager, torch::optim::SGDOptions(1), {.policy = Policy::Managed});
    manager.manage(0ms);
    std::vector<Update> updates;
    auto first = Model::attach(here, of_first, {.gather = gather, .observer = [&](const Update& update, const auto&) {
                                                  updates.push_back(update);
                                                }});
    auto second = Model::attach(here, of_second);
    manager.detach();
    for (auto* worker : {&first, &second, &first, &second}) worker->step({at::ones({3, 4}), at::ones({3})});
    EXPECT_EQ(first.stats().waiting, 4u);
    first.settle();
    EXPECT_EQ(first.version(), versions);
    EXPECT_EQ(updates.size(), versions);
    EXPECT_EQ(updates.at(0).contributions.size(), static_cast<size_t>(gather));
    EXPECT_TRUE(at::allclose(of_first->weight, linear()->weight - static_cast<double>(versions)));
    EXPECT_EQ(first.stats().waiting, 0u);
  }
}

TEST_F(SharedManaged, WhatAKilledManagerHasAppliedAndNotFreedIsNotAppliedAgain) {
  auto manager = create({});
  auto worker = Model::attach(name, other);
  const auto segment = segment_of(name);
  worker.step(gradients_of(0, 0));
  EXPECT_EQ(manager.manage(10s), 1u);
  segment->header().slots[worker.worker()][0].state.store(SlotState::Ready);  // As if it had ended before that.
  EXPECT_EQ(manager.manage(0ms), 0u);
  EXPECT_EQ(manager.version(), 1u);
  EXPECT_EQ(manager.stats().duplicates, 1u);
  EXPECT_EQ(manager.stats().waiting, 0u);
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
  EXPECT_THAT(message_of<farad::Error>([&] { manager.average(); }), HasSubstr("Policy::Averaged"));
}

}  // namespace
}  // namespace farad::shared
