// Steps of optimizers while workers crash, at any instant that a seed finds. Of those that are left, all have taken a
// step or none has, wholly; and nobody waits for ever.

#include <ATen/ATen.h>
#include <farad/optim.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <vector>

#include "sim/simulation.h"
#include "suites/seeds.h"
#include "worker_core.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using Sgd = DistributedOptimizer<torch::optim::SGD>;

std::vector<Tensor>* parameters;  // By owner. Remote functions find them here.

Tensor parameter_here() { return (*parameters)[Worker::current().rank()]; }

/// Each step of it takes one away from every element.
class Training {
 public:
  Training(Worker& worker, std::vector<int> owners) : worker_(worker), owners_(std::move(owners)) {}

  /// The first error ends it.
  void run(int steps) {
    try {
      std::vector<RRef<Tensor>> references;
      for (const int owner : owners_) references.push_back(worker_.remote<parameter_here>(owner));
      Sgd optimizer(worker_, references, torch::optim::SGDOptions(1));
      for (; taken_ < steps; taken_++) {
        Context context(worker_);
        Tensor loss = at::zeros({}, at::kDouble);
        for (const auto& each : references) loss = loss + each.to_here().sum();
        context.backward({loss});
        optimizer.step(context);
      }
    } catch (const Error& error) {
      error_ = error.what_without_backtrace();
    }
  }
  int taken() const { return taken_; }
  const std::string& error() const { return error_; }

 private:
  Worker& worker_;
  const std::vector<int> owners_;
  int taken_ = 0;
  std::string error_;
};

/// How many steps an owner has taken, all of its elements alike.
double steps_of(int owner) {
  const Tensor value = -(*parameters)[owner].detach();
  EXPECT_TRUE(at::equal(value, at::full_like(value, value[0].item<double>())))
      << "worker" << owner << " has half a step";
  return value[0].item<double>();
}

class Steps {
 public:
  Steps(uint64_t seed, int size) : simulation_(seed, {.size = size}), values_(static_cast<size_t>(size)) {
    for (auto& each : values_) each = at::zeros({3}, at::kDouble).requires_grad_();
    parameters = &values_;
    for (int rank = 0; rank < size; rank++) all_.push_back(rank);
  }

  net::sim::Random& random() { return simulation_.random(); }
  void run(const Simulation::Program& program, const std::vector<int>& victims) {
    simulation_.run(
        [&](Worker& worker) {
          program(worker);
          EXPECT_TRUE(simulation_.eventually([&] { return open_steps(worker) == 0; }))
              << worker.self().name << " waits for the end of a step";
        },
        [&] {
          for (const int victim : victims) {
            simulation_.pass(random().between(1us, 12ms));
            if (simulation_.alive(victim)) {
              simulation_.crash(victim, random().chance(0.7) ? net::sim::Death::OfProcess : net::sim::Death::OfMachine);
              crashed_.push_back(victim);
            }
          }
        });
  }
  const std::vector<int>& all() const { return all_; }
  bool has_crashed(int rank) const { return std::count(crashed_.begin(), crashed_.end(), rank) > 0; }
  std::vector<int> left(const std::vector<int>& of) const {
    std::vector<int> left;
    for (const int rank : of) {
      if (!has_crashed(rank)) left.push_back(rank);
    }
    return left;
  }

 private:
  static size_t open_steps(Worker& worker) { return detail::WorkerCore::of(worker).optim().ledger().open_steps(); }

  Simulation simulation_;
  std::vector<Tensor> values_;
  std::vector<int> all_;
  std::vector<int> crashed_;
};

void expect_agreement(const std::vector<int>& owners) {
  for (const int owner : owners) EXPECT_EQ(steps_of(owner), steps_of(owners.front())) << "worker" << owner;
}

TEST(CrashingOptimizers, OwnersAgreeWhenTheCoordinatorCrashes) {
  for_each_seed(300, [](uint64_t seed) {
    Steps steps(seed, 2 + static_cast<int>(seed % 4));
    steps.run(
        [&](Worker& worker) {
          if (worker.rank() == 0) Training(worker, steps.all()).run(8);
        },
        {0});
    expect_agreement(steps.left(steps.all()));
  });
}

TEST(CrashingOptimizers, OwnersAgreeWhenTheCoordinatorAndAnOwnerCrash) {
  for_each_seed(300, [](uint64_t seed) {
    Steps steps(seed, 4);
    const int owner = 1 + static_cast<int>(seed % 3);
    steps.run(
        [&](Worker& worker) {
          if (worker.rank() == 0) Training(worker, steps.all()).run(8);
        },
        seed % 2 ? std::vector{0, owner} : std::vector{owner, 0});
    expect_agreement(steps.left(steps.all()));
  });
}

TEST(CrashingOptimizers, ErrorSaysWhereTheStepIsApplied) {
  for_each_seed(300, [](uint64_t seed) {
    Steps steps(seed, 4);
    int taken = 0;
    std::string error;
    steps.run(
        [&](Worker& worker) {
          if (worker.rank() != 0) return;
          Training training(worker, {1, 2, 3});
          training.run(8);
          taken = training.taken();
          error = training.error();
        },
        {2});
    if (!steps.has_crashed(2)) return;
    const bool applied = error.find("it is applied at worker1, worker3") != error.npos;
    expect_agreement({1, 3});
    EXPECT_EQ(steps_of(1), taken + applied) << error;
  });
}

TEST(CrashingOptimizers, WhoCrashesHoldsUpNobodyElse) {
  for_each_seed(200, [](uint64_t seed) {
    Steps steps(seed, 4);
    int taken = 0;
    std::string error;
    steps.run(
        [&](Worker& worker) {
          if (worker.rank() > 1) return;
          Training training(worker, {2, 3});
          training.run(6);
          if (worker.rank() == 1) {
            taken = training.taken();
            error = training.error();
          }
        },
        {0});
    EXPECT_EQ(taken, 6) << error;
    expect_agreement({2, 3});
  });
}

TEST(Optimizers, OfSeveralCoordinatorsTakeEveryStepOnce) {
  for_each_seed(200, [](uint64_t seed) {
    Steps steps(seed, 4);
    int taken[2] = {};
    std::string errors[2];
    steps.run(
        [&](Worker& worker) {
          if (worker.rank() > 1) return;
          Training training(worker, {2, 3});
          training.run(6);
          taken[worker.rank()] = training.taken();
          errors[worker.rank()] = training.error();
        },
        {});
    for (const int rank : {0, 1}) EXPECT_EQ(taken[rank], 6) << errors[rank];
    for (const int owner : {2, 3}) EXPECT_EQ(steps_of(owner), 12) << "worker" << owner;
  });
}

}  // namespace
}  // namespace farad::test
