// One update of all, in step; in threads of one process.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "shared/seats.h"
#include "unit/shared/members.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using testing::HasSubstr;

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

TEST(SharedAllReduced, WhoHasLeftIsNotTakenForOneThatEnded) {
  Linear bound = linear();
  const auto name = fresh_name();
  auto model = Model::create(name, bound, torch::optim::SGDOptions(1), {.policy = Policy::AllReduced});
  const auto segment = segment_of(name);
  auto& seats = segment->header().seats;
  EXPECT_EQ(ended_at(seats[0]), 0u) << "it lives";
  seats[1].pid.store(static_cast<uint32_t>(::getpid()));
  seats[1].started.store(1);  // A process that had this number before.
  EXPECT_EQ(ended_at(seats[1]), static_cast<uint32_t>(::getpid()));
  seats[1].pid.store(0);
  EXPECT_EQ(ended_at(seats[1]), 0u) << "its seat is free";
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

}  // namespace
}  // namespace farad::shared
