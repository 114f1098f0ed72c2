// What a step or a load that fails at one owner leaves behind: nothing, nowhere, of what optimizers remember either.

#include <farad/loss_scale.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <thread>

#include "optim/participant.h"
#include "suites/optimizer_twins.h"
#include "temporary_directory.h"
#include "worker_core.h"

namespace farad::test {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using namespace torch::optim;

Tensor make_leaf(double value) { return at::full({3, 2}, value, at::kDouble).requires_grad_(); }
Tensor make_other_leaf() { return at::full({5}, 7.0, at::kDouble).requires_grad_(); }
Tensor value_of(Tensor& parameter) { return parameter.detach(); }
void set_data(Tensor& parameter, Tensor data) { parameter.set_data(data); }
/// Workers of a suite live in one process, so it means the same here.
uint64_t address_of(Tensor& parameter) { return reinterpret_cast<uint64_t>(parameter.unsafeGetTensorImpl()); }
bool same(const RRef<Tensor>& far, const Tensor& near) { return at::equal(far.rpc_sync<value_of>(), near.detach()); }

class OptimizerAtomicity : public RpcSuite {
 protected:
  template <class Optimizer, class Options>
  void expect_no_trace_of_a_failed_step(const Options& options) {
    ::farad::test::Group group = start(3);
    const Twins twins(group, {1, 2});
    DistributedOptimizer<Optimizer> far(group[0], twins.far(), options);
    Optimizer near(twins.near(), options);
    for (int i = 0; i < 6; i++) {
      Context context(group[0]);
      context.backward({twins.far_loss(Twins::input(i))});
      if (i == 2 || i == 3) {
        // The last parameter of worker2 is another one for a while, which its new value would not fit into. The second
        // one would grow to the old one's size when it is copied.
        const auto& last = twins.far().back();
        const auto value = last.template rpc_sync<value_of>();
        last.template rpc_sync<set_data>(i == 2 ? at::zeros({5}, at::kDouble) : at::zeros({1, 4}, at::kDouble));
        EXPECT_THAT(message_of<Error>([&] { far.step(context); }),
                    AllOf(HasSubstr("worker2"), HasSubstr("no parameter has moved")));
        last.template rpc_sync<set_data>(value);
      } else {
        far.step(context);
        near.zero_grad();
        twins.near_loss(Twins::input(i)).backward();
        near.step();
      }
      twins.expect_equal();
    }
  }

  const TemporaryDirectory directory_;
};

TEST_P(OptimizerAtomicity, FailedStepIsForgottenByAdam) { expect_no_trace_of_a_failed_step<Adam>(AdamOptions(0.02)); }
TEST_P(OptimizerAtomicity, FailedStepIsForgottenBySgdWithMomentum) {
  expect_no_trace_of_a_failed_step<SGD>(SGDOptions(0.05).momentum(0.9));
}
TEST_P(OptimizerAtomicity, FailedStepIsForgottenByAdagrad) {
  expect_no_trace_of_a_failed_step<Adagrad>(AdagradOptions(0.02).lr_decay(0.1));
}

TEST_P(OptimizerAtomicity, SkippedStepIsForgotten) {
  Group group = start(3);
  const Twins twins(group, {1, 2});
  DistributedOptimizer<Adam> far(group[0], twins.far(), AdamOptions(0.02));
  Adam near(twins.near(), AdamOptions(0.02));
  LossScale scale({.value = 1024});  // A power of two changes no digit.
  for (int i = 0; i < 5; i++) {
    Context context(group[0]);
    const bool good = i != 2;
    const double factor = good ? 1 : std::numeric_limits<double>::quiet_NaN();
    context.backward({scale.apply(twins.far_loss(Twins::input(i)) * factor)});
    EXPECT_EQ(scale.step(far, context), good);
    if (good) {
      near.zero_grad();
      twins.near_loss(Twins::input(i)).backward();
      near.step();
    }
    twins.expect_equal();
  }
}

TEST_P(OptimizerAtomicity, LoadThatDoesNotFitAtOneOwnerChangesNothingAnywhere) {
  Group group = start(3);
  auto& worker = group[0];
  using Sgd = DistributedOptimizer<SGD>;
  const auto options = SGDOptions(0.1).momentum(0.9);
  const auto train = [&](Sgd& optimizer, const RRef<Tensor>& one, const RRef<Tensor>& other) {
    Context context(worker);
    context.backward({one.to_here().square().sum() + other.to_here().square().sum()});
    optimizer.step(context);
  };
  {
    const auto one = worker.remote<make_leaf>("worker1", 1.0), other = worker.remote<make_leaf>("worker2", 2.0);
    Sgd saved(worker, {one, other}, options);
    train(saved, one, other);
    saved.set_lr(0.01);
    saved.save(directory_.path());
  }
  const auto one = worker.remote<make_leaf>("worker1", 3.0), other = worker.remote<make_other_leaf>("worker2");
  Sgd far(worker, {one, other}, options);
  const auto near_one = make_leaf(3), near_other = make_other_leaf();
  SGD near({near_one, near_other}, options);
  for (int i = 0; i < 4; i++) {
    if (i == 2) {
      EXPECT_THAT(message_of<Error>([&] { far.load(directory_.path()); }),
                  AllOf(HasSubstr("worker2"), HasSubstr("what it is to become"), HasSubstr("no parameter has moved")));
      EXPECT_EQ(far.lr(), 0.1);
      EXPECT_TRUE(same(one, near_one) && same(other, near_other));
    }
    train(far, one, other);
    near.zero_grad();
    (near_one.square().sum() + near_other.square().sum()).backward();
    near.step();
    EXPECT_TRUE(same(one, near_one) && same(other, near_other)) << "after step " << i;
  }
}

TEST_P(OptimizerAtomicity, LoadInWhichAnOwnerIsLostChangesNothingAtTheOthers) {
  Group group = start(3);
  auto& worker = group[0];
  const auto one = worker.remote<make_leaf>("worker1", 1.0), other = worker.remote<make_leaf>("worker2", 2.0);
  DistributedOptimizer<SGD> far(worker, {one, other}, SGDOptions(0.1));
  far.set_lr(0.01);
  far.save(directory_.path());
  far.set_lr(0.1);
  one.rpc_sync<set_data>(at::full({3, 2}, 5.0, at::kDouble));

  // As if another optimizer were in the middle of a step there: the load is prepared at worker1, and waits at worker2.
  auto& there = detail::WorkerCore::of(group[2]).optim();
  ASSERT_TRUE(there.locks().try_lock({~uint64_t{0}, 1}, {reinterpret_cast<const void*>(other.rpc_sync<address_of>())}));
  std::thread load([&] {
    EXPECT_THAT(message_of<PeerLost>([&] { far.load(directory_.path()); }),
                AllOf(HasSubstr("worker2"), HasSubstr("no parameter has moved at any worker that is left")));
  });
  EXPECT_TRUE(eventually([&] { return there.ledger().open_steps() == 1; }));
  group.drop(2);
  load.join();
  EXPECT_TRUE(same(one, at::full({3, 2}, 5.0, at::kDouble)));
  EXPECT_EQ(far.lr(), 0.1);
  EXPECT_EQ(detail::WorkerCore::of(group[1]).optim().ledger().open_steps(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Each, OptimizerAtomicity, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(OptimizerParticipant, StepThatIsGivenUpJustBeforeItWaitsDoesNotWait) {
  Group group("local", 1);
  auto& service = detail::WorkerCore::of(group[0]).optim();
  optim::ShardPlan plan;
  plan.optimizer = service.new_optimizer();
  plan.owners = {0};
  auto& all = plan.groups.emplace_back();
  all.settings = detail::settings_of(SGDOptions(1));
  // Many, so that it takes a while to see that the last one is not free.
  const void* last = nullptr;
  for (int64_t i = 0; i < 5000; i++) {
    const auto leaf = at::zeros({1}).requires_grad_();
    last = std::max<const void*>(last, leaf.unsafeGetTensorImpl());
    all.parameters.push_back(RRef<Tensor>::local(group[0], leaf));
    all.numbers.push_back(i);
  }
  const auto participant = std::make_shared<optim::Participant>(service, plan);
  const optim::StepId other{~uint64_t{0}, 1};
  ASSERT_TRUE(service.locks().try_lock(other, {last}));
  for (uint64_t step = 1; step <= 30 && !HasFailure(); step++) {
    std::optional<Future<optim::Standing>> ended;
    std::thread coordinator([&] {
      while (service.ledger().open_steps() == 0) std::this_thread::yield();
      ended = service.ledger().abort({plan.optimizer, step});
    });
    optim::Recipe recipe;
    recipe.step = step;
    recipe.rates = {1};
    recipe.wait = true;
    const auto vote = participant->prepare(recipe);
    coordinator.join();
    EXPECT_TRUE(eventually([&] { return ended->ready() && vote.ready(); })) << "step " << step;
    // Not Busy, which a coordinator takes for "try again, and wait": it has waited.
    EXPECT_EQ(vote.wait(), optim::Vote::Over);
  }
  service.locks().unlock(other);
}

}  // namespace
}  // namespace farad::test
