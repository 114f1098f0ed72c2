// kill -9 in the middle of training: of those that are left, all have taken a step or none has.

#include <ATen/ATen.h>
#include <farad/optim.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "process/nursery.h"
#include "process/rpc/member.h"
#include "temporary_directory.h"
#include "worker_core.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using testing::HasSubstr;
using Sgd = DistributedOptimizer<torch::optim::SGD>;

constexpr int64_t large = 50'000;  // Elements: so that a copy takes a while.

/// The parameter of this process.
Tensor parameter_here() {
  static const Tensor parameter = at::zeros({large}, at::kDouble).requires_grad_();
  return parameter;
}
Tensor value_here() { return parameter_here().detach(); }
Tensor sum_here() { return parameter_here().sum(); }

bool is_settled(Worker& worker) { return detail::WorkerCore::of(worker).optim().ledger().open_steps() == 0; }
bool is_settled_here() { return is_settled(Worker::current()); }

/// True as soon as `done` is, false if it takes longer than anything here should.
bool eventually(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Takes steps, each of which takes one away from every element, until one fails, and counts them.
std::string train(Worker& worker, const std::vector<int>& owners, std::atomic<int>& taken) {
  std::vector<RRef<Tensor>> parameters;
  for (const int owner : owners) parameters.push_back(worker.remote<parameter_here>(owner));
  Sgd optimizer(worker, parameters, torch::optim::SGDOptions(1));
  try {
    for (;; taken++) {
      Context context(worker);
      Tensor loss = at::zeros({}, at::kDouble);
      for (const int owner : owners) loss = loss + worker.rpc_sync<sum_here>(owner);
      context.backward({loss});
      optimizer.step(context);
    }
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
}

/// Trains until it is killed.
[[noreturn]] void be_a_trainer(const MemberPlan& plan) {
  WorkerOptions options;
  options.rank = plan.rank;
  options.size = plan.size;
  options.transport = plan.transport;
  options.rendezvous = plan.rendezvous;
  options.lost_after = std::chrono::milliseconds(plan.lost_after_ms);
  try {
    auto worker = Worker::join(std::move(options));
    std::atomic<int> taken = 0;
    train(worker, {0, 1}, taken);
  } catch (...) {
  }
  _exit(1);
}

/// Rank 0 here, two others in processes of their own.
class OptimizerProcess : public testing::TestWithParam<std::string> {
 protected:
  OptimizerProcess() {
    plan_.size = 3;
    plan_.lost_after_ms = 1000;
    GetParam().copy(plan_.transport, sizeof plan_.transport - 1);
    ("file://" + directory_.path() + "/meeting").copy(plan_.rendezvous, sizeof plan_.rendezvous - 1);
    const at::NoGradGuard no_grad;
    parameter_here().zero_();
  }
  ~OptimizerProcess() override {
    worker_.reset();
    for (int rank : {1, 2}) kill(rank);
  }

  template <auto Life>
  void bear(int rank) {
    plan_.rank = rank;
    children_[rank] = Nursery::bear<Life>(plan_);
  }
  void join() {
    WorkerOptions options;
    options.rank = 0;
    options.size = 3;
    options.transport = GetParam();
    options.rendezvous = plan_.rendezvous;
    options.lost_after = std::chrono::milliseconds(plan_.lost_after_ms);
    worker_ = std::make_unique<Worker>(Worker::join(options));
  }
  void kill(int rank) {
    if (const pid_t child = std::exchange(children_[rank], 0)) Nursery::kill(child);
  }
  /// How many steps an owner has taken, with all of its elements alike.
  double steps_of(int owner) {
    const Tensor value = -worker_->rpc_sync<value_here>(owner);
    EXPECT_TRUE(at::equal(value, at::full_like(value, value[0].item<double>()))) << "half a step";
    return value[0].item<double>();
  }

  const TemporaryDirectory directory_;
  MemberPlan plan_;
  pid_t children_[3] = {};
  std::unique_ptr<Worker> worker_;
};

TEST_P(OptimizerProcess, OwnerThatIsGoneBeforeTheStepMovesNobody) {
  for (int rank : {1, 2}) bear<be_a_member>(rank);
  join();
  const auto one = worker_->remote<parameter_here>(1), other = worker_->remote<parameter_here>(2);
  Sgd optimizer(*worker_, {one, other}, torch::optim::SGDOptions(1));
  Context context(*worker_);
  context.backward({worker_->rpc_sync<sum_here>(1) + worker_->rpc_sync<sum_here>(2)});
  kill(1);
  try {
    optimizer.step(context);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const PeerLost& lost) {
    EXPECT_THAT(lost.what_without_backtrace(),
                testing::AllOf(HasSubstr("worker1"), HasSubstr("no parameter has moved")));
  }
  EXPECT_EQ(steps_of(2), 0);
}

TEST_P(OptimizerProcess, OwnerThatDiesInTheMiddleLeavesTheOtherWholeAndTheErrorSaysHow) {
  for (int rank : {1, 2}) bear<be_a_member>(rank);
  join();
  std::atomic<int> taken = 0;
  std::thread killer([&] {
    EXPECT_TRUE(eventually([&] { return taken >= 5; }));
    kill(1);
  });
  const auto error = train(*worker_, {1, 2}, taken);
  killer.join();
  EXPECT_THAT(error, testing::ContainsRegex("worker ?1"));
  const bool applied = error.find("it is applied at worker2") != error.npos;
  EXPECT_EQ(steps_of(2), taken + applied) << error;
}

TEST_P(OptimizerProcess, OwnerThatDiesWhileGradientsAreClippedAndSavedIsNamed) {
  for (int rank : {1, 2}) bear<be_a_member>(rank);
  join();
  const auto one = worker_->remote<parameter_here>(1), other = worker_->remote<parameter_here>(2);
  Sgd optimizer(*worker_, {one, other}, torch::optim::SGDOptions(1));
  const auto checkpoint = directory_.file("checkpoint");
  std::atomic<int> rounds = 0;
  std::thread killer([&] {
    EXPECT_TRUE(eventually([&] { return rounds >= 5; }));
    kill(1);
  });
  std::string error;
  try {
    Context context(*worker_);
    context.backward({worker_->rpc_sync<sum_here>(1) + worker_->rpc_sync<sum_here>(2)});
    for (;; rounds++) {
      optimizer.clip_grad_norm(context, 1);
      optimizer.save(checkpoint);
    }
  } catch (const Error& lost) {
    error = lost.what_without_backtrace();
  }
  killer.join();
  EXPECT_THAT(error, testing::ContainsRegex("clip_grad_norm|checkpoint"));
  EXPECT_THAT(error, testing::ContainsRegex("worker ?1"));

  // Those that are left go on, and what was saved is whole.
  Sgd smaller(*worker_, {other}, torch::optim::SGDOptions(1));
  {
    Context context(*worker_);
    context.backward({worker_->rpc_sync<sum_here>(2)});
    smaller.step(context);
  }
  EXPECT_EQ(steps_of(2), 1);
  const auto elsewhere = worker_->remote<parameter_here>(0);
  Sgd resumed(*worker_, {elsewhere, other}, torch::optim::SGDOptions(1));
  resumed.load(checkpoint);
  EXPECT_EQ(steps_of(2), 0);
}

TEST_P(OptimizerProcess, OwnersAgreeWhenTheCoordinatorIsKilledInTheMiddle) {
  bear<be_a_member>(1);
  bear<be_a_trainer>(2);
  const auto version = parameter_here()._version();
  join();
  EXPECT_TRUE(eventually([&] { return parameter_here()._version() >= version + 5; }));
  kill(2);
  EXPECT_TRUE(eventually([&] { return is_settled(*worker_) && worker_->rpc_sync<is_settled_here>(1); }));
  EXPECT_EQ(steps_of(0), steps_of(1));
  EXPECT_GE(steps_of(0), 5);
}

INSTANTIATE_TEST_SUITE_P(Each, OptimizerProcess, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace farad::test
