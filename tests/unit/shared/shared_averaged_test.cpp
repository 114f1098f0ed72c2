// Copies that are averaged; in threads of one process.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <atomic>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "shared/segment.h"
#include "shared/writer.h"
#include "unit/shared/members.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

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

Linear of_zeros() {
  Linear module = linear();
  module->to(at::kDouble);
  for (auto& parameter : module->parameters()) parameter.detach().zero_();
  return module;
}

/// Of an SGD with a rate of one: adds one to the weight, or to the bias.
Gradients to_the_weight() { return {at::full({3, 4}, -1.0, at::kDouble), at::Tensor()}; }
Gradients to_the_bias() { return {at::Tensor(), at::full({3}, -1.0, at::kDouble)}; }

/// What the weight and the bias of the model have become.
std::vector<double> reached(Model& model) {
  std::vector<double> values;
  for (const auto& [name, tensor] : model.snapshot().tensors) {
    const auto first = tensor.flatten()[0];
    EXPECT_TRUE(at::all(tensor == first).item<bool>()) << name;
    values.push_back(first.item<double>());
  }
  return values;
}

TEST(SharedAveraged, OfTwoMembersThatNeverMeetTheProgressOfBothStays) {
  Linear one = of_zeros(), two = of_zeros();
  const auto name = fresh_name();
  const Options hasty{.policy = Policy::Averaged, .average_every = 0, .wait_for_late = 1ms};
  auto first = Model::create(name, one, torch::optim::SGDOptions(1), hasty);
  auto second = Model::attach(name, two, hasty);
  const auto come = [](Model& model, const Gradients& gradients, double samples = 1) {
    model.step(gradients, samples);
    model.average();
  };
  come(first, to_the_weight());
  EXPECT_THAT(reached(first), ElementsAre(1, 0));
  come(second, to_the_bias());
  EXPECT_THAT(reached(first), ElementsAre(0.5, 0.5)) << "as if they had met";
  come(first, to_the_weight());  // Its copy goes from 1 to 2.
  EXPECT_THAT(reached(first), ElementsAre(1.25, 0.25));
  come(second, to_the_bias(), 3);  // From (0.5, 0.5); and one sample of the first has come since.
  EXPECT_THAT(reached(first), ElementsAre(0.6875, 1.1875));
  for (int i = 0; i < 20; ++i) {
    const auto before = reached(first);
    come(first, to_the_weight());
    come(second, to_the_bias());
    const auto after = reached(first);
    EXPECT_GT(after[0] + after[1], before[0] + before[1] + 0.4)
        << "a round brings two thirds of a step of one, as a rule";
    EXPECT_GT(std::min(after[0], after[1]), std::min(before[0], before[1])) << "one of them is lost";
  }
}

TEST(SharedAveraged, WhatOneHasAveragedBeforeItLeftStaysWhenOneComesThatStartedBefore) {
  Linear one = of_zeros(), two = of_zeros();
  const auto name = fresh_name();
  const Options options{.policy = Policy::Averaged, .average_every = 1};
  auto first = Model::create(name, one, torch::optim::SGDOptions(1), options);
  auto second = Model::attach(name, two, options);
  for (int i = 0; i < 3; ++i) first.step(to_the_weight());
  EXPECT_THAT(reached(first), ElementsAre(3, 0)) << "alone it is its copy";
  first.detach();
  second.step(to_the_bias());
  EXPECT_THAT(reached(second), ElementsAre(2.25, 0.25)) << "one sample beside three";
  second.step(to_the_bias());
  EXPECT_THAT(reached(second), ElementsAre(2.25, 1.25)) << "it lacks none any more";
}

TEST(SharedAveraged, AMemberThatIsNotLateHasItsShareWhateverAnotherOneLacks) {
  Linear one = of_zeros(), two = of_zeros();
  const auto name = fresh_name();
  auto first = Model::create(name, one, torch::optim::SGDOptions(1),
                             {.policy = Policy::Averaged, .average_every = 0, .wait_for_late = 1ms});
  auto second = Model::attach(name, two, {.average_every = 0});
  for (int i = 0; i < 2; ++i) {
    first.step(to_the_weight());
    first.average();
  }
  first.step(to_the_weight());
  second.step(to_the_bias());
  std::thread waiting([&] { second.average(); });  // A member from now on, and it waits for the first.
  const auto segment = segment_of(name);
  while (segment->header().seats[second.worker()].arrived.load() == 0) std::this_thread::yield();
  first.average();
  waiting.join();
  // A half of (3, 0), a quarter of (0, 1), and what is left of (2, 0).
  EXPECT_THAT(reached(first), ElementsAre(2, 0.25));
}

TEST(SharedAveraged, AnAverageThatOneCouldNotWaitForButCameAboutCountsItsStepsOnce) {
  Linear one = of_zeros(), two = of_zeros();
  const auto name = fresh_name();
  auto first = Model::create(name, one, torch::optim::SGDOptions(1),
                             {.policy = Policy::Averaged, .patience = 500ms, .members = 2, .average_every = 0});
  auto second = Model::attach(name, two, {.average_every = 0});
  const auto segment = segment_of(name);
  first.step(to_the_weight());
  second.step(to_the_bias());
  std::promise<void> let_go;
  std::atomic<bool> over = false;  // whatever came of it
  std::thread busy([&] {           // From when the first has come on, the lock is not to be had.
    while (segment->header().seats[0].arrived.load() == 0 && !over.load()) std::this_thread::yield();
    Writer(segment, 2).alone([&] { let_go.get_future().wait(); }, base::never).raise();
  });
  EXPECT_THAT(message_of<Timeout>([&] { first.average(); }), testing::HasSubstr("not known"));
  over.store(true);
  let_go.set_value();
  busy.join();
  EXPECT_EQ(second.average(), 1u) << "the first is there as well";
  EXPECT_THAT(reached(second), ElementsAre(0.5, 0.5));
  second.detach();
  first.step(to_the_weight(), 3);  // Its copy is (2, 0), of which the sample of the first step is in the average.
  EXPECT_EQ(first.stats().waiting, 2u) << "it does not know yet";
  EXPECT_EQ(first.average(), 2u);
  // Three samples beside the two that it lacks.
  EXPECT_THAT(reached(first), ElementsAre(testing::DoubleEq(0.4 * 0.5 + 0.6 * 2), testing::DoubleEq(0.4 * 0.5)));
  EXPECT_EQ(first.stats().workers[0].applied, 2u);
  EXPECT_EQ(first.stats().workers[0].begun, 2u);
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
