// A member of a group is killed or stopped in the middle of an operation: the others hear of it in time, and go on.

#include <ATen/ATen.h>
#include <farad/collectives.h>
#include <farad/data_parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "process/nursery.h"
#include "process/rpc/member.h"
#include "temporary_directory.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using testing::HasSubstr;

using Clock = std::chrono::steady_clock;  // Of the machine, so that processes can compare what they read from it.

constexpr auto lost_after = 1000ms;
/// Who is killed closes its connections. Who is stopped is silent for `lost_after` first; then members that wait for
/// each other may each have to find out by themselves.
constexpr auto if_killed = lost_after, if_stopped = 3 * lost_after;
constexpr int rounds = 20;

WorkerOptions options_of(const MemberPlan& plan, int rank) {
  WorkerOptions options;
  options.rank = rank;
  options.size = plan.size;
  options.transport = plan.transport;
  options.rendezvous = plan.rendezvous;
  options.lost_after = lost_after;
  return options;
}

std::string file_of(const MemberPlan& plan) {
  return std::string(plan.rendezvous).substr(std::string("file://").size()) + ".heard";
}

/// That this process has heard of the loss, for the test's.
void say_heard(const MemberPlan& plan) { std::ofstream(file_of(plan)) << Clock::now().time_since_epoch().count(); }

/// When another process has.
Clock::time_point when_heard(const MemberPlan& plan) {
  Clock::rep count = 0;
  std::ifstream file(file_of(plan));
  EXPECT_TRUE(static_cast<bool>(file >> count)) << "nothing was said";
  return Clock::time_point(Clock::duration(count));
}

/// Of small tensors and of large ones, with gradients and without.
void compute_once(farad::Group& group, int round) {
  if (round % 3 == 0) {
    const auto sum = group.all_reduce(at::ones({2'000'000}));  // In several steps.
    ASSERT_EQ(sum.mean().item<double>(), group.size());
    return;
  }
  auto x = at::ones({round % 3 == 1 ? 3 : 300'000}).requires_grad_();
  group.all_reduce(x).sum().backward();
  ASSERT_EQ(x.grad()[0].item<double>(), group.size());
}

/// Until one fails.
void compute(farad::Group& group) {
  for (int round = 0;; ++round) compute_once(group, round);
}

/// Computes with all until one is lost, and then with those that are left.
[[noreturn]] void be_a_partner(const MemberPlan& plan) {
  int status = 2;
  try {
    auto worker = Worker::join(options_of(plan, plan.rank));
    farad::Group group(worker);
    try {
      compute(group);
    } catch (const PeerLost&) {
      say_heard(plan);
      farad::Group left(worker, {0, 1});
      for (int round = 0; round < rounds; ++round) left.all_reduce(at::ones({2}));
      left.barrier();
      status = 0;
    }
  } catch (...) {
  }
  _exit(status);
}

Tensor inputs_of(int rank, int round) { return at::arange(12.).reshape({4, 3}).add(rank + 0.1 * round).sin(); }

void step(torch::nn::Linear& model, const Tensor& inputs) {
  model->zero_grad();
  model->forward(inputs).pow(2).mean().backward();
  const c10::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.sub_(parameter.grad(), 0.1);
}

/// Trains with all until one is lost.
[[noreturn]] void be_a_trainer(const MemberPlan& plan) {
  int status = 2;
  try {
    auto worker = Worker::join(options_of(plan, plan.rank));
    torch::nn::Linear model(3, 2);
    DataParallel parallel(model, farad::Group(worker));
    try {
      for (int round = 0;; ++round) step(model, inputs_of(plan.rank, round));
    } catch (const PeerLost&) {
      say_heard(plan);
      status = 0;
    }
  } catch (...) {
  }
  _exit(status);
}

/// Ranks 1 and 2 have processes of their own; 2 is the victim.
class CollectivesProcess : public testing::TestWithParam<std::string> {
 protected:
  CollectivesProcess() {
    plan_.size = 3;
    GetParam().copy(plan_.transport, sizeof plan_.transport - 1);
    ("file://" + directory_.path() + "/meeting").copy(plan_.rendezvous, sizeof plan_.rendezvous - 1);
  }

  /// All that are left hear of it within that time.
  void lose_one(int signal, Clock::duration within) {
    pid_t children[3] = {};
    for (int rank : {1, 2}) {
      plan_.rank = rank;
      children[rank] = Nursery::bear<be_a_partner>(plan_);
    }
    auto worker = Worker::join(options_of(plan_, 0));
    farad::Group group(worker);
    for (int round = 0; round < rounds; ++round) compute_once(group, round);
    const auto start = Clock::now();
    ::kill(children[2], signal);
    try {
      for (int round = rounds;; ++round) compute_once(group, round);
    } catch (const PeerLost& lost) {
      EXPECT_THAT(lost.what_without_backtrace(), HasSubstr("rank 2 (worker2)"));
    }
    EXPECT_LT(Clock::now() - start, within);
    const auto later = Clock::now();
    EXPECT_THROW(farad::Group(worker).recv(2), PeerLost);
    EXPECT_LT(Clock::now() - later, within);
    farad::Group left(worker, {0, 1});
    for (int round = 0; round < rounds; ++round) {
      EXPECT_EQ(left.all_reduce(at::ones({2})).sum().item<double>(), 4);
    }
    left.barrier();
    EXPECT_EQ(Nursery::bury(children[1]), 0);
    EXPECT_LT(when_heard(plan_) - start, within) << "of rank 1";
    Nursery::kill(children[2]);
  }

  const TemporaryDirectory directory_;
  MemberPlan plan_;
};

TEST_P(CollectivesProcess, DataParallelTrainsLikeOneProcessUntilAMemberIsKilled) {
  pid_t children[3] = {};
  for (int rank : {1, 2}) {
    plan_.rank = rank;
    children[rank] = Nursery::bear<be_a_trainer>(plan_);
  }
  auto worker = Worker::join(options_of(plan_, 0));
  torch::nn::Linear model(3, 2), alone(3, 2);
  DataParallel parallel(model, farad::Group(worker));
  {
    const c10::NoGradGuard no_grad;
    alone->weight.copy_(model->weight);
    alone->bias.copy_(model->bias);
  }
  for (int round = 0; round < rounds; ++round) {
    step(model, inputs_of(0, round));
    step(alone, at::cat({inputs_of(0, round), inputs_of(1, round), inputs_of(2, round)}));
  }
  EXPECT_TRUE(at::allclose(model->weight, alone->weight, 1e-4, 1e-6));
  const auto start = Clock::now();
  ::kill(children[2], SIGKILL);
  try {
    for (int round = rounds;; ++round) step(model, inputs_of(0, round));
  } catch (const PeerLost& lost) {
    EXPECT_THAT(lost.what_without_backtrace(), HasSubstr("rank 2 (worker2)"));
  }
  EXPECT_LT(Clock::now() - start, if_killed);
  EXPECT_EQ(Nursery::bury(children[1]), 0);
  EXPECT_LT(when_heard(plan_) - start, if_killed) << "of rank 1";
  Nursery::kill(children[2]);
}

TEST_P(CollectivesProcess, AKilledMemberIsLostToAllAndTheOthersGoOn) { lose_one(SIGKILL, if_killed); }
TEST_P(CollectivesProcess, AStoppedMemberIsLostToAllAndTheOthersGoOn) { lose_one(SIGSTOP, if_stopped); }

INSTANTIATE_TEST_SUITE_P(Each, CollectivesProcess, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace farad::test
