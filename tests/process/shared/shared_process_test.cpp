// Processes that train one model in shared memory, and what becomes of its name.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "process/nursery.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using shared::Model;
using shared::Policy;
using torch::nn::Linear;

constexpr int64_t width = 100;  // 40 KB, so that an update takes a while.

struct Plan {
  char name[64] = {};
  int steps = 0;  ///< 0 = until it is killed
  bool creates = false;
  Policy policy = Policy::Locked;
};

Linear zeroed() {
  Linear module(width, width);
  for (auto& parameter : module->parameters()) parameter.detach().zero_();
  return module;
}

/// Adds one to each element, over and over. Sums of small integers are exact, so what was lost can be counted.
void train(const Plan& plan) {
  auto module = zeroed();
  auto model = plan.creates ? Model::create(plan.name, module, torch::optim::SGDOptions(1), {plan.policy})
                            : Model::attach(plan.name, module);
  const std::vector<at::Tensor> gradients{at::full({width, width}, -1.0), at::full({width}, -1.0)};
  for (int i = 0; plan.steps == 0 || i < plan.steps; ++i) model.step(gradients);
  ::_exit(0);
}

class SharedProcess : public testing::Test {
 protected:
  Plan plan(const char* test) {
    Plan plan;
    ("test-" + std::to_string(::getpid()) + "-" + test).copy(plan.name, sizeof plan.name - 1);
    return plan;
  }
  /// False if it does not come about.
  static bool wait_until(const std::function<bool()>& holds) {
    for (const auto end = std::chrono::steady_clock::now() + 30s; std::chrono::steady_clock::now() < end;) {
      if (holds()) return true;
      std::this_thread::yield();
    }
    return false;
  }
  static bool all_are(const Model::Snapshot& snapshot, uint64_t value) {
    for (const auto& [name, tensor] : snapshot.tensors) {
      if (!at::all(tensor == static_cast<double>(value)).item<bool>()) return false;
    }
    return true;
  }
};

TEST_F(SharedProcess, HogwildCountsEachUpdateWhateverItsElementsLose) {
  auto how = plan("hogwild");
  how.policy = Policy::Hogwild;
  how.steps = 500;
  auto module = zeroed();
  auto model = Model::create(how.name, module, torch::optim::SGDOptions(1), {how.policy});
  std::vector<pid_t> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(Nursery::bear<train>(how));
  for (const pid_t worker : workers) EXPECT_EQ(Nursery::bury(worker), 0);
  const auto stats = model.stats();
  EXPECT_EQ(stats.version, 1'500u);
  EXPECT_EQ(stats.cut_off, 0u);
  EXPECT_LE(model.snapshot().tensors[0].second.max().item<float>(), 1'500.0f);
}

TEST_F(SharedProcess, WhoWantsTheLockGetsItBesideThoseWhoAlwaysDo) {
  auto how = plan("fair");
  auto module = zeroed();
  auto model = Model::create(how.name, module, torch::optim::SGDOptions(1));
  const pid_t greedy[] = {Nursery::bear<train>(how), Nursery::bear<train>(how)};
  ASSERT_TRUE(wait_until([&] { return model.version() > 100; }));
  how.steps = 100;
  EXPECT_EQ(Nursery::bury(Nursery::bear<train>(how)), 0)
      << "it gives up if it does not get the lock within its patience";
  for (const pid_t one : greedy) Nursery::kill(one);
  const auto snapshot = model.snapshot();
  EXPECT_TRUE(all_are(snapshot, snapshot.version));
}

TEST_F(SharedProcess, TheNameOutlivesItsCreatorAndEndsWithTheLastHolder) {
  auto creator = plan("name");
  creator.creates = true;
  auto holder = creator;
  holder.creates = false;
  const pid_t first = Nursery::bear<train>(creator);
  const pid_t second = Nursery::bear<train>(holder);
  {
    auto module = zeroed();
    auto model = Model::attach(creator.name, module);
    ASSERT_TRUE(wait_until([&] { return model.stats().workers.size() == 3; }));
    model.detach();
  }
  Nursery::kill(first);
  {
    auto module = zeroed();
    auto model = Model::attach(creator.name, module);
    const auto snapshot = model.snapshot();
    EXPECT_TRUE(all_are(snapshot, snapshot.version));
  }
  Nursery::kill(second);
  auto module = zeroed();
  EXPECT_THROW(Model::attach(creator.name, module, {.patience = 50ms}), Timeout);
}

TEST_F(SharedProcess, AForkedChildIsAWorkerOfItsOwnAndKeepsTheName) {
  const auto how = plan("forked");
  auto module = zeroed();
  auto model = std::make_unique<Model>(Model::create(how.name, module, torch::optim::SGDOptions(1)));
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const auto update = model->step({at::full({width, width}, -1.0), at::full({width}, -1.0)});
      char byte = 0;
      (void)!::read(go[0], &byte, 1);
      ::_exit(update.version == 1 && update.worker == 1 ? 0 : 1);
    } catch (...) {
      ::_exit(2);
    }
  }
  ASSERT_TRUE(wait_until([&] { return model->version() == 1; }));
  EXPECT_TRUE(all_are(model->snapshot(), 1));
  model.reset();
  auto later = zeroed();
  EXPECT_EQ(Model::attach(how.name, later).version(), 1u) << "the child offers it now";
  EXPECT_EQ(::write(go[1], "x", 1), 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace farad::test
