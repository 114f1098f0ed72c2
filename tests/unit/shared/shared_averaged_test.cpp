// Copies that are averaged; in threads of one process.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <vector>

#include "shared/segment.h"
#include "unit/shared/members.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;

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

TEST(SharedAveraged, ACopyThatIsNeverPutBackHasNoRoomToBeKeptIn) {
  const Layout layout({{"weight", at::zeros({100'000})}},
                      {"SGD", {{"lr", 1}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}, {"nesterov", 0}}});
  std::shared_ptr<Segment> own, shared;
  Segment::create(fresh_name(), layout, {.keeps = false}, own).raise();
  Segment::create(fresh_name(), layout, {}, shared).raise();
  EXPECT_GE(shared->size() - own->size(), layout.bytes());
}

}  // namespace
}  // namespace farad::shared
