// How a step ends at an owner that hears of it late, or ends it by itself: the step is not lost, and nobody is held up
// for ever.

#include <torch/optim/sgd.h>

#include <future>
#include <optional>

#include "suites/optimizer_twins.h"
#include "temporary_directory.h"
#include "worker_core.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using torch::optim::SGD;
using torch::optim::SGDOptions;

Tensor make_leaf(double value) { return at::full({3, 2}, value, at::kDouble).requires_grad_(); }
Tensor value_of(Tensor& parameter) { return parameter.detach(); }
/// Workers of a suite live in one process, so it means the same here.
uint64_t address_of(Tensor& parameter) { return reinterpret_cast<uint64_t>(parameter.unsafeGetTensorImpl()); }
bool is(const RRef<Tensor>& far, double value) {
  return at::equal(far.rpc_sync<value_of>(), make_leaf(value).detach());
}

/// Where the only thread of a worker stands, so that no function runs there: it does not wait as one waits for a
/// Future, for then the worker would have another thread made.
class Gate {
 public:
  /// Returns when the thread stands.
  Gate(Worker& from, int rank) : from_(from), rank_(rank) {
    here = this;
    call_ = from.with({.timeout = 0ms}).rpc_async<stand>(rank);
    came_.get_future().wait();
  }
  ~Gate() {
    open_.set_value();
    call_.wait();
  }

  /// Returns when whoever has been given up by `from` by now is known there to have been.
  void outlast() const { EXPECT_THROW(from_.with({.timeout = 200ms}).rpc_sync<nothing>(rank_), Timeout); }

  static bool nothing() { return true; }
  /// What that thread runs.
  static void stand() {
    here->came_.set_value();
    here->open_.get_future().wait();
  }

 private:
  static inline Gate* here = nullptr;

  Worker& from_;
  const int rank_;
  std::promise<void> came_, open_;
  Future<void> call_;
};

/// As if another optimizer were in the middle of a step with that parameter.
class Held {
 public:
  Held(Worker& owner, const RRef<Tensor>& parameter) : locks_(detail::WorkerCore::of(owner).optim().locks()) {
    EXPECT_TRUE(locks_.try_lock(step, {reinterpret_cast<const void*>(parameter.rpc_sync<address_of>())}));
  }
  ~Held() { locks_.unlock(step); }

 private:
  static constexpr optim::StepId step{~uint64_t{0}, 1};
  optim::ParameterLocks& locks_;
};

class OptimizerLate : public RpcSuite {
 protected:
  static WorkerOptions options() {
    WorkerOptions options;
    options.threads = 1;
    options.rpc_timeout = 1500ms;
    return options;
  }
  static optim::Ledger& ledger(Worker& worker) { return detail::WorkerCore::of(worker).optim().ledger(); }
  /// What the next optimizer of that worker will call itself.
  static uint64_t next_optimizer(Worker& worker) { return detail::WorkerCore::of(worker).optim().new_optimizer() + 1; }
  static void expect_all_ended(Group& group) {
    for (int rank = 0; rank < group.size(); rank++) {
      EXPECT_TRUE(eventually([&] { return ledger(group[rank]).open_steps() == 0; })) << "worker" << rank;
    }
  }
  /// Gives what `act` throws, whose step is prepared at worker1, while its second half finds worker1 busy for longer
  /// than it waits. worker2, which owns `other`, is not busy then.
  static std::string with_worker1_busy(Group& group, optim::StepId step, const RRef<Tensor>& other,
                                       const std::function<void()>& act) {
    std::optional<Held> held(std::in_place, group[2], other);
    auto message = std::async(std::launch::async, [&] { return message_of<Timeout>(act); });
    // Owners are asked in their order by then, so worker1 has been.
    EXPECT_TRUE(eventually([&] { return ledger(group[2]).is_open(step); }));
    const Gate gate(group[0], 1);
    held.reset();
    const auto thrown = message.get();
    gate.outlast();
    return thrown;
  }

  const TemporaryDirectory directory_;
};

TEST_P(OptimizerLate, CommitReachesAnOwnerThatIsBusyForLongerThanTheStepWaits) {
  Group group = start(3, options());
  auto& worker = group[0];
  const auto one = worker.remote<make_leaf>("worker1", 1.0), other = worker.remote<make_leaf>("worker2", 1.0);
  const auto number = next_optimizer(worker);
  DistributedOptimizer<SGD> optimizer(worker, {one, other}, SGDOptions(1));
  Context context(worker);
  context.backward({one.to_here().sum() + other.to_here().sum()});
  // The first try finds worker2 busy.
  EXPECT_THAT(with_worker1_busy(group, {number, 2}, other, [&] { optimizer.step(context); }),
              AllOf(HasSubstr("it is applied at worker2"),
                    HasSubstr("what became of it at worker1 is not known: no answer in 1500 ms")));
  expect_all_ended(group);
  EXPECT_TRUE(is(one, 0) && is(other, 0));
  optimizer.step(context);
  EXPECT_TRUE(is(one, -1) && is(other, -1));
}

TEST_P(OptimizerLate, LoadThatIsHeardLateHasSetTheLearningRate) {
  Group group = start(3, options());
  auto& worker = group[0];
  const auto one = worker.remote<make_leaf>("worker1", 1.0), other = worker.remote<make_leaf>("worker2", 1.0);
  const auto number = next_optimizer(worker);
  DistributedOptimizer<SGD> optimizer(worker, {one, other}, SGDOptions(1));
  optimizer.save(directory_.path());  // Step 1, which does nothing.
  Context context(worker);
  context.backward({one.to_here().sum() + other.to_here().sum()});
  optimizer.step(context);
  optimizer.set_lr(0.5);
  EXPECT_THAT(with_worker1_busy(group, {number, 3}, other, [&] { optimizer.load(directory_.path()); }),
              AllOf(HasSubstr("it is applied at worker2"), HasSubstr("what became of it at worker1 is not known")));
  EXPECT_EQ(optimizer.lr(), 1) << "as it is where it was loaded";
  expect_all_ended(group);
  EXPECT_TRUE(is(one, 1) && is(other, 1));
}

TEST_P(OptimizerLate, StepThatWaitsAtABusyOnlyOwnerIsDroppedThereWhenItsCoordinatorHasGoneOn) {
  Group group = start(2, options());
  auto& worker = group[0];
  const auto leaf = worker.remote<make_leaf>("worker1", 1.0);
  const auto number = next_optimizer(worker);
  DistributedOptimizer<SGD> optimizer(worker, {leaf}, SGDOptions(1));
  Context context(worker);
  context.backward({leaf.to_here().sum()});
  {
    const Held held(group[1], leaf);
    auto message =
        std::async(std::launch::async, [&] { return message_of<Timeout>([&] { optimizer.step(context); }); });
    EXPECT_TRUE(eventually([&] { return ledger(group[1]).is_open({number, 1}); }));
    {
      const Gate gate(worker, 1);
      EXPECT_THAT(message.get(), AllOf(HasSubstr("what became of it at worker1 is not known"), HasSubstr("no answer")));
      gate.outlast();
    }
    expect_all_ended(group);  // Though the parameter is held still.
  }
  EXPECT_TRUE(is(leaf, 1));
  optimizer.step(context);
  EXPECT_TRUE(is(leaf, 0));
}

TEST_P(OptimizerLate, StepThatAnOwnerEndsWhileItWaitsIsNotTakenForDone) {
  Group group = start(3);
  auto& worker = group[0];
  const auto one = worker.remote<make_leaf>("worker1", 1.0), other = worker.remote<make_leaf>("worker2", 1.0);
  const auto number = next_optimizer(worker);
  DistributedOptimizer<SGD> optimizer(worker, {one, other}, SGDOptions(1));
  Context context(worker);
  context.backward({one.to_here().sum() + other.to_here().sum()});
  const auto given_up_by_worker2 = [&](uint64_t step, const std::function<void()>& act) {
    const Held held(group[2], other);
    auto message = std::async(std::launch::async, [&] { return message_of<Aborted>(act); });
    EXPECT_TRUE(eventually([&] { return ledger(group[2]).is_open({number, step}); }));
    (void)ledger(group[2]).awaited({number, step});  // As if it had taken worker0 for lost.
    return message.get();
  };
  EXPECT_THAT(given_up_by_worker2(2, [&] { optimizer.step(context); }),
              AllOf(HasSubstr("worker2"), HasSubstr("took this worker for lost"), HasSubstr("no parameter has moved")));
  EXPECT_TRUE(is(one, 1) && is(other, 1));
  EXPECT_THAT(given_up_by_worker2(4, [&] { optimizer.save(directory_.path()); }),
              AllOf(HasSubstr("was not saved"), HasSubstr("worker2")));
  expect_all_ended(group);
  optimizer.step(context);
  EXPECT_TRUE(is(one, 0) && is(other, 0));
}

INSTANTIATE_TEST_SUITE_P(Each, OptimizerLate, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace farad::test
