// Gradients of a backward pass, set to zero or to nothing, before the pass or after the step: it makes no difference.

#include <ATen/ATen.h>
#include <farad/shared.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "unit/shared/members.h"

namespace farad::shared {
namespace {

using at::Tensor;

constexpr int rounds = 4;

/// Of a member in a round: the same each time, and another one for each.
Tensor loss_of(Linear& module, int member, int round) {
  const auto x = at::arange(32, at::kDouble).view({8, 4}).mul(0.1 * (1 + member)).add(round).sin();
  const auto y = module->forward(x);
  return (y * y).mean() + y.cos().mean();
}

Linear in_doubles() {
  Linear module = linear();
  module->to(at::kDouble);
  return module;
}

/// libtorch's optimizer alone, by the mean of the gradients of all members.
Linear trained_alone(int members, const torch::optim::AdamOptions& options) {
  Linear alone = in_doubles();
  torch::optim::Adam optimizer(alone->parameters(), options);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Gradients> all;
    for (int member = 0; member < members; ++member) {
      alone->zero_grad(true);
      loss_of(alone, member, round).backward();
      all.push_back({alone->weight.grad(), alone->bias.grad()});
    }
    const auto mean = mean_of(all, std::vector<double>(all.size(), 1));
    alone->weight.mutable_grad() = mean[0];
    alone->bias.mutable_grad() = mean[1];
    optimizer.step();
  }
  return alone;
}

/// Policy, to nothing and not to zero, before the pass and not after the step, from a module of its own.
using Clearing = std::tuple<Policy, bool, bool, bool>;
class SharedClearing : public testing::TestWithParam<Clearing> {};

TEST_P(SharedClearing, GivesWhatOneProcessGives) {
  const auto [policy, to_nothing, before, pulls] = GetParam();
  const int members = policy == Policy::AllReduced ? 2 : 1;
  const auto options = torch::optim::AdamOptions(0.1);
  Linear bound = in_doubles();
  const auto name = fresh_name();
  auto model = Model::create(name, bound, options, {.policy = policy, .members = members});
  const bool managed = policy == Policy::Managed;
  std::vector<Linear> modules;
  std::vector<Model> models;
  for (int i = 0; i < members; ++i) modules.push_back(in_doubles());
  for (auto& module : modules) models.push_back(Model::attach(name, module, {.average_every = 1}));
  const auto train = [&, to_nothing = to_nothing, before = before, pulls = pulls](int member) {
    auto& mine = models[static_cast<size_t>(member)];
    Linear own = in_doubles();
    auto& module = pulls ? own : modules[static_cast<size_t>(member)];
    for (int round = 0; round < rounds; ++round) {
      if (pulls) mine.pull(own);
      if (before) module->zero_grad(to_nothing);
      loss_of(module, member, round).backward();
      mine.step(module);
      if (!before) module->zero_grad(to_nothing);
      if (managed) {
        EXPECT_EQ(model.manage(std::chrono::seconds(10)), 1u);
      }
    }
  };
  std::vector<std::thread> threads;
  for (int member = 0; member < members; ++member) threads.emplace_back(train, member);
  for (auto& thread : threads) thread.join();
  const auto alone = trained_alone(members, options);
  Linear trained = in_doubles();  // Under Averaged what the creator has bound is a copy that nobody has trained.
  model.pull(trained);
  EXPECT_TRUE(at::allclose(trained->weight, alone->weight, 1e-10, 1e-12)) << trained->weight << alone->weight;
  EXPECT_TRUE(at::allclose(trained->bias, alone->bias, 1e-10, 1e-12));
  EXPECT_FALSE(at::allclose(alone->bias, in_doubles()->bias)) << "nothing was trained";
}

std::string name_of(const testing::TestParamInfo<Clearing>& info) {
  const auto [policy, to_nothing, before, pulls] = info.param;
  constexpr const char* names[] = {"Locked", "Hogwild", "AllReduced", "Managed", "Averaged"};
  return std::string(names[static_cast<int>(policy)]) + (to_nothing ? "ToNothing" : "ToZero") +
         (before ? "Before" : "After") + (pulls ? "Pulled" : "Bound");
}
INSTANTIATE_TEST_SUITE_P(Each, SharedClearing,
                         testing::Combine(testing::Values(Policy::Locked, Policy::Hogwild, Policy::AllReduced,
                                                          Policy::Managed, Policy::Averaged),
                                          testing::Bool(), testing::Bool(), testing::Bool()),
                         name_of);

}  // namespace
}  // namespace farad::shared
