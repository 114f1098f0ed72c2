// Processes that only look at a model: there may be any number, and they cost no room.

#include <ATen/ATen.h>
#include <farad/error.h>
#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <deque>
#include <vector>

#include "unit/shared/models.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<at::Tensor> ones{at::ones({3, 4}), at::ones({3})};

class SharedOnlyReading : public testing::TestWithParam<Policy> {
 protected:
  Model create(Options options = {}) {
    options.policy = GetParam();
    options.average_every = 1;
    return Model::create(name, bound, torch::optim::SGDOptions(1), std::move(options));
  }
  static void step(Model& model) {
    model.step(ones);
    if (GetParam() == Policy::Managed) model.manage(10s);
  }
  const std::string name = fresh_name();
  Linear bound = linear(), other = linear(), pulled = linear();
};

TEST_P(SharedOnlyReading, SeesWhatOthersMakeOfTheModelAndIsNoWorker) {
  auto model = create({.moving_average = 0.5});
  auto reader = Model::attach(name, other, {.read_only = true});
  EXPECT_EQ(reader.worker(), -1);
  EXPECT_EQ(model.stats().workers.size(), 1u);
  step(model);
  EXPECT_EQ(reader.version(), 1u);
  EXPECT_TRUE(at::equal(other->weight, linear()->weight - 1)) << "what is bound is in the shared values";
  EXPECT_EQ(reader.pull(pulled), 1u);
  EXPECT_TRUE(at::equal(pulled->weight, linear()->weight - 1));
  reader.pull_average(pulled);
  EXPECT_TRUE(at::allclose(pulled->weight, linear()->weight - 0.5));
  EXPECT_TRUE(at::equal(reader.snapshot().tensors[0].second, other->weight));
  EXPECT_EQ(reader.history().size(), 1u);
  reader.detach();
  step(model);
  EXPECT_TRUE(at::equal(other->weight, linear()->weight - 1)) << "it keeps the values of then";
}

TEST_P(SharedOnlyReading, ChangesNothing) {
  auto model = create();
  auto reader = Model::attach(name, other, {.read_only = true});
  const auto refused = AllOf(HasSubstr(name), HasSubstr("read_only"));
  EXPECT_THAT(message_of<farad::Error>([&] { reader.step(ones); }), refused);
  EXPECT_THAT(message_of<farad::Error>([&] { reader.set_lr(0.1); }), refused);
  EXPECT_THAT(message_of<farad::Error>([&] { reader.load("/nowhere"); }), refused);
  if (GetParam() == Policy::Managed) {
    EXPECT_THAT(message_of<farad::Error>([&] { reader.manage(0ms); }), refused);
    EXPECT_THAT(message_of<farad::Error>([&] { reader.settle(); }), refused);
  }
  if (GetParam() == Policy::Averaged) {
    EXPECT_THAT(message_of<farad::Error>([&] { reader.average(); }), refused);
  }
  EXPECT_EQ(model.version(), 0u);
  EXPECT_EQ(model.lr(), 1);
  EXPECT_THAT(message_of<farad::Error>([&] { (void)Model::create(fresh_name(), other, {.read_only = true}); }),
              HasSubstr("read_only"));
}

INSTANTIATE_TEST_SUITE_P(Each, SharedOnlyReading,
                         testing::Values(Policy::Locked, Policy::Hogwild, Policy::AllReduced, Policy::Managed,
                                         Policy::Averaged),
                         name_of_policy);

TEST(SharedSeats, WhoComesWhenAllAreTakenReadsAndIsAWorkerOnceOneIsFree) {
  const auto name = fresh_name();
  std::vector<Linear> modules;
  for (size_t i = 0; i <= most_workers; ++i) modules.push_back(linear());
  std::deque<Model> workers;
  workers.push_back(Model::create(name, modules[0], torch::optim::SGDOptions(1)));
  while (workers.size() < most_workers) workers.push_back(Model::attach(name, modules[workers.size()]));
  auto last = Model::attach(name, modules[most_workers]);
  EXPECT_EQ(last.worker(), -1);
  EXPECT_EQ(last.stream(), most_workers);
  workers.front().step(ones);
  Linear pulled = linear();
  EXPECT_EQ(last.pull(pulled), 1u);
  expect_equal(pulled, modules[0]);
  EXPECT_THAT(message_of<farad::Error>([&] { last.step(ones); }), AllOf(HasSubstr("64 workers"), HasSubstr(name)));
  workers[1].step(ones);
  workers.pop_front();
  const auto update = last.step(ones);
  EXPECT_EQ(update.version_read, 1u) << "which it had pulled when it only read";
  EXPECT_EQ(update.worker, 0);
  EXPECT_EQ(last.worker(), 0);
  EXPECT_EQ(last.stream(), most_workers) << "what it draws stays the same";
  EXPECT_EQ(last.version(), 3u);
}

TEST(SharedSeats, UnderAveragedWhoGetsOneLaterHasACopyFromThenOn) {
  const auto name = fresh_name();
  std::vector<Linear> modules;
  for (size_t i = 0; i <= most_workers; ++i) modules.push_back(linear());
  std::deque<Model> workers;
  workers.push_back(
      Model::create(name, modules[0], torch::optim::SGDOptions(1), {.policy = Policy::Averaged, .average_every = 0}));
  while (workers.size() < most_workers) workers.push_back(Model::attach(name, modules[workers.size()]));
  auto& module = modules[most_workers];
  auto last = Model::attach(name, module, {.average_every = 0});
  workers.pop_back();
  last.step(ones);
  EXPECT_TRUE(at::equal(module->weight, linear()->weight - 1));
  Linear pulled = linear();
  last.pull(pulled);
  expect_equal(pulled, linear());
}

/// How much memory the kernel has set aside for a model.
int64_t memory_of(const std::string& name) {
  struct stat facts{};
  EXPECT_EQ(::fstat(segment_of(name)->fd(), &facts), 0);
  return 512 * facts.st_blocks;
}

TEST(SharedSeats, RoomForGradientsIsSetAsideWhenTheFirstAreBrought) {
  for (const auto policy : {Policy::AllReduced, Policy::Managed, Policy::Averaged}) {
    const auto name = fresh_name();
    Linear bound(500, 500), other(500, 500), third(500, 500);
    const std::vector<at::Tensor> gradients{at::ones({500, 500}), at::ones({500})};
    constexpr int64_t bytes = 500 * 500 * 4;
    auto model = Model::create(name, bound, torch::optim::SGDOptions(1), {.policy = policy, .queue = 1});
    const auto before = memory_of(name);
    auto second = Model::attach(name, other), reader = Model::attach(name, third, {.read_only = true});
    reader.snapshot();
    EXPECT_EQ(memory_of(name), before) << "of those who have brought none";
    model.step(gradients);
    if (policy == Policy::Averaged) model.average();
    if (policy == Policy::Managed) model.manage(10s);
    EXPECT_GE(memory_of(name), before + bytes);
    EXPECT_LT(memory_of(name), before + 2 * bytes);
  }
}

}  // namespace
}  // namespace farad::shared
