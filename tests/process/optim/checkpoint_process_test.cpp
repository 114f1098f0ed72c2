// kill -9 at any instant of a save: the checkpoint that was there before is there, or the new one, whole.

#include <ATen/ATen.h>
#include <farad/optim.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "process/nursery.h"
#include "suites/rpc_suite.h"
#include "temporary_directory.h"

namespace farad::test {
namespace {

using at::Tensor;
using Clock = std::chrono::steady_clock;
using Sgd = DistributedOptimizer<torch::optim::SGD>;

/// Of the workers of this process: 1 and 2 have one each.
Tensor& parameter_of(int rank) {
  static Tensor parameters[2] = {at::zeros({20'000}, at::kDouble).requires_grad_(),
                                 at::zeros({30'000}, at::kDouble).requires_grad_()};
  return parameters[rank - 1];
}
Tensor parameter_here() { return parameter_of(Worker::current().rank()); }

void fill(double value) {
  const at::NoGradGuard no_grad;
  for (int rank : {1, 2}) parameter_of(rank).fill_(value);
}

/// Three workers, two of which own a parameter, and an optimizer of both.
struct Owners {
  Group group{"local", 3};
  Sgd optimizer{
      group[0], {group[0].remote<parameter_here>(1), group[0].remote<parameter_here>(2)}, torch::optim::SGDOptions(1)};
};

struct SavingPlan {
  char directory[120] = {};
  char acknowledged[120] = {};
  int first = 0;
};

/// Saves `first`, `first` + 1, ..., and says after each that it is saved, until it is killed.
[[noreturn]] void save_for_ever(const SavingPlan& plan) {
  try {
    Owners owners;
    const int file = ::open(plan.acknowledged, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int value = plan.first;; value++) {
      fill(value);
      owners.optimizer.save(plan.directory);
      if (::pwrite(file, &value, sizeof value, 0) != sizeof value) break;
    }
  } catch (...) {
  }
  _exit(1);
}

int acknowledged(const std::string& path) {
  int value = -1;
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&value), sizeof value);
  return value;
}

TEST(CheckpointProcess, KilledInTheMiddleOfASaveLeavesOneWholeCheckpoint) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const TemporaryDirectory directory;
  SavingPlan plan;
  directory.file("checkpoint").copy(plan.directory, sizeof plan.directory - 1);
  directory.file("acknowledged").copy(plan.acknowledged, sizeof plan.acknowledged - 1);
  Owners owners;
  for (int round = 0; round < 25; round++) {
    const pid_t child = Nursery::bear<save_for_ever>(plan);
    const auto late = Clock::now() + std::chrono::seconds(30);
    while (acknowledged(plan.acknowledged) < plan.first && Clock::now() < late) std::this_thread::yield();
    // Some saves take a hundred times as long as others: what they wait for is the disk.
    const auto until = Clock::now() + std::chrono::microseconds(random() % 20'000);
    while (Clock::now() < until) std::this_thread::yield();
    Nursery::kill(child);

    const int last = acknowledged(plan.acknowledged);
    ASSERT_GE(last, plan.first) << "it did not save anything";
    fill(-1);
    owners.optimizer.load(plan.directory);
    const double value = parameter_of(1)[0].item<double>();
    EXPECT_TRUE(value == last || value == last + 1) << value << " is not what was saved last, " << last;
    for (int rank : {1, 2}) {
      EXPECT_TRUE(at::equal(parameter_of(rank).detach(), at::full_like(parameter_of(rank), value))) << rank;
    }
    plan.first = static_cast<int>(value) + 1;
  }
  // What killed ones left behind goes with the next that is whole.
  owners.optimizer.save(plan.directory);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(plan.directory)) files += entry.is_regular_file();
  EXPECT_EQ(files, 3) << "a manifest and a file for each owner";
}

}  // namespace
}  // namespace farad::test
