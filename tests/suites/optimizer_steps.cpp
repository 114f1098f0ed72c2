// What a step does beside what its optimizer computes: which gradients it takes, what it leaves alone, how it fails.

#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <thread>

#include "suites/optimizer_twins.h"
#include "worker_core.h"

namespace farad::test {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

Tensor make_leaf(double value) { return at::full({3, 2}, value, at::kDouble).requires_grad_(); }
Tensor make_constant() { return at::ones({3}, at::kDouble); }
Tensor make_computed() { return make_leaf(1) * 2; }
Tensor value_of(Tensor& parameter) { return parameter.detach(); }
/// Workers of a suite live in one process, so it means the same here.
uint64_t address_of(Tensor& parameter) { return reinterpret_cast<uint64_t>(parameter.unsafeGetTensorImpl()); }
/// The rows of a weight, with a sparse gradient.
Tensor embed(Tensor& weight) { return at::embedding(weight, at::arange(2), -1, false, true); }

class OptimizerSuite : public RpcSuite {};

TEST_P(OptimizerSuite, ParameterThatThePassDidNotReachStays) {  // L8
  Group group = start(2);
  auto& worker = group[0];
  const auto always = worker.remote<make_leaf>("worker1", 1.0);
  const auto sometimes = worker.remote<make_leaf>("worker1", 2.0);
  DistributedOptimizer<Adam> optimizer(worker, {always, sometimes}, AdamOptions(0.1));
  for (const bool reached : {true, false, true}) {
    const auto before = sometimes.rpc_sync<value_of>();
    Context context(worker);
    auto loss = always.to_here().sum();
    if (reached) loss = loss + sometimes.to_here().sum();
    context.backward({loss});

    optimizer.step(context);

    EXPECT_NE(at::equal(sometimes.rpc_sync<value_of>(), before), reached);
  }
}

TEST_P(OptimizerSuite, FrozenParameterStays) {
  Group group = start(2);
  auto& worker = group[0];
  const auto trained = worker.remote<make_leaf>("worker1", 1.0);
  const auto frozen = worker.remote<make_constant>("worker1");
  DistributedOptimizer<SGD> optimizer(worker, {trained, frozen}, SGDOptions(0.5).weight_decay(1));
  Context context(worker);
  context.backward({trained.to_here().sum() * frozen.to_here().sum()});
  optimizer.step(context);
  EXPECT_TRUE(at::equal(frozen.rpc_sync<value_of>(), make_constant()));
  EXPECT_FALSE(at::equal(trained.rpc_sync<value_of>(), make_leaf(1)));
}

TEST_P(OptimizerSuite, GradientsOfContextsAddUp) {
  Group group = start(3);
  const Twins twins(group, {1, 2});
  DistributedOptimizer<SGD> far(group[0], twins.far(), SGDOptions(0.05));
  SGD near(twins.near(), SGDOptions(0.05));
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<Context*> all;
  for (int i = 0; i < 3; i++) {
    std::thread([&] {  // Contexts of one thread do not overlap.
      Context context(group[0]);
      context.backward({twins.far_loss(Twins::input(i))});
      contexts.push_back(std::make_unique<Context>(std::move(context)));
    })
        .join();
    all.push_back(contexts.back().get());
    twins.near_loss(Twins::input(i)).backward();
  }
  far.step(all);
  near.step();
  twins.expect_equal();
}

TEST_P(OptimizerSuite, GroupsHaveOptionsOfTheirOwn) {
  Group group = start(3);
  const Twins twins(group, {1, 2});
  const auto some = [](const auto& all, size_t first) {
    return std::vector(all.begin() + first, all.begin() + first + 2);
  };
  using Far = DistributedOptimizer<SGD>;
  Far far(group[0], std::vector<Far::Group>{{some(twins.far(), 0), SGDOptions(0.1).momentum(0.5)},
                                            {some(twins.far(), 2), SGDOptions(0.01)}});
  SGD first(some(twins.near(), 0), SGDOptions(0.1).momentum(0.5));
  SGD second(some(twins.near(), 2), SGDOptions(0.01));
  EXPECT_EQ(far.group_count(), 2u);
  EXPECT_EQ(far.lr(1), 0.01);
  for (int i = 0; i < 4; i++) {
    if (i == 2) {
      far.set_lr(1, 0.02);
      second.param_groups()[0].options().set_lr(0.02);
    }
    Context context(group[0]);
    context.backward({twins.far_loss(Twins::input(i))});
    far.step(context);
    first.zero_grad();
    second.zero_grad();
    twins.near_loss(Twins::input(i)).backward();
    first.step();
    second.step();
    twins.expect_equal();
  }
}

TEST_P(OptimizerSuite, ClippingIsThatOfOneProcess) {
  Group group = start(3);
  const Twins twins(group, {1, 2});
  DistributedOptimizer<SGD> far(group[0], twins.far(), SGDOptions(0.05));
  Context context(group[0]);
  context.backward({twins.far_loss(Twins::input(0))});
  twins.near_loss(Twins::input(0)).backward();

  double squares = 0;
  for (const auto& weight : twins.near()) squares += weight.grad().square().sum().item<double>();
  EXPECT_NEAR(far.clip_grad_norm(context, 0.5), std::sqrt(squares), 1e-12);
  EXPECT_NEAR(far.clip_grad_norm(context, 1e9), 0.5, 1e-5) << "of what was clipped before";
  far.clip_grad_value(context, 0.01);
  for (const auto& weight : twins.near()) {
    weight.mutable_grad() = (weight.grad() * 0.5 / (std::sqrt(squares) + 1e-6)).clamp(-0.01, 0.01);
  }
  far.step(context);
  SGD(twins.near(), SGDOptions(0.05)).step();
  const auto values = twins.far_values();
  for (size_t i = 0; i < values.size(); i++) {
    EXPECT_TRUE(at::allclose(values[i], twins.near()[i].detach(), 1e-12, 1e-14));
  }
}

TEST_P(OptimizerSuite, GradientsOfLowPrecisionAreMeasuredAndDividedInFloat) {
  Group group = start(2);
  auto& worker = group[0];
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    SCOPED_TRACE(c10::toString(type));
    const auto leaf = RRef<Tensor>::local(worker, at::ones({3}, type).requires_grad_());
    DistributedOptimizer<SGD> optimizer(worker, {leaf}, SGDOptions(64));
    const auto pass = [&](Context& context, double gradient) {
      context.backward({(leaf.local_value().to(at::kFloat) * gradient).sum()});
    };
    {
      Context context(worker);
      pass(context, 49152);
      const double norm = 49152 * std::sqrt(3);  // More than a Half can be, and more digits than a BFloat16 has.
      EXPECT_NEAR(optimizer.clip_grad_norm(context, norm * 1e-5), norm, norm * 1e-6);
      EXPECT_NEAR(optimizer.clip_grad_norm(context, 1), norm * 1e-5, norm * 1e-5 * 0.003) << "of what was clipped";
    }
    Context context(worker);
    constexpr double scale = 3 << 20;  // One of it is a Half of two digits, and a BFloat16 that is not exact either.
    pass(context, scale / 256);
    EXPECT_TRUE(optimizer.step_if_finite({&context}, scale));
    EXPECT_TRUE(at::equal(leaf.local_value().detach(), at::full({3}, 0.75, type))) << leaf.local_value();
  }
}

TEST_P(OptimizerSuite, FailureAtOneOwnerMovesNothingAnywhere) {
  Group group = start(3);
  auto& worker = group[0];
  const auto dense = worker.remote<make_leaf>("worker1", 1.0);
  const auto sparse = worker.remote<make_leaf>("worker2", 2.0);
  DistributedOptimizer<Adam> optimizer(worker, {dense, sparse}, AdamOptions(0.1));  // Adam takes no sparse gradients.
  {
    Context context(worker);
    context.backward({dense.to_here().sum() + sparse.rpc_sync<embed>().sum()});
    const auto message = message_of<Error>([&] { optimizer.step(context); });
    EXPECT_THAT(message, AllOf(HasSubstr("worker2"), HasSubstr("sparse"), HasSubstr("no parameter has moved")));
    EXPECT_TRUE(at::equal(dense.rpc_sync<value_of>(), make_leaf(1).detach()));
    EXPECT_TRUE(at::equal(sparse.rpc_sync<value_of>(), make_leaf(2).detach()));
  }
  // What it remembers did not move either: the next step is the first one.
  Context context(worker);
  context.backward({dense.to_here().sum() + sparse.to_here().sum()});
  optimizer.step(context);
  Tensor expected = make_leaf(1);
  expected.mutable_grad() = at::ones_like(expected);
  Adam({expected}, AdamOptions(0.1)).step();
  EXPECT_TRUE(at::equal(dense.rpc_sync<value_of>(), expected.detach()));
}

TEST_P(OptimizerSuite, WhatCannotBeOptimizedIsRefusedByItsNumberAndOwner) {
  Group group = start(2);
  auto& worker = group[0];
  const auto good = worker.remote<make_leaf>("worker1", 1.0);
  const auto computed = worker.remote<make_computed>("worker1");
  const auto make = [&](std::vector<RRef<Tensor>> parameters) {
    return message_of<Error>([&] { DistributedOptimizer<SGD>(worker, parameters, SGDOptions(0.1)); });
  };
  EXPECT_THAT(make({good, computed}), AllOf(HasSubstr("worker1"), HasSubstr("parameter 1"), HasSubstr("leaves")));
  EXPECT_THAT(make({good, good}), AllOf(HasSubstr("worker1"), HasSubstr("parameter 1"), HasSubstr("given before")));
}

TEST_P(OptimizerSuite, ClippingNamesAnOwnerThatIsLost) {
  Group group = start(3);
  const Twins twins(group, {1, 2});
  DistributedOptimizer<SGD> far(group[0], twins.far(), SGDOptions(0.05));
  Context context(group[0]);
  context.backward({twins.far_loss(Twins::input(0))});
  group.drop(2);
  for (int i = 0; i < 2; i++) {  // The second time as well: it is not stuck in the first.
    EXPECT_THAT(message_of<PeerLost>([&] { far.clip_grad_norm(context, 1); }),
                AllOf(HasSubstr("clip_grad_norm"), HasSubstr("worker2")));
    EXPECT_THAT(message_of<PeerLost>([&] { far.clip_grad_value(context, 1); }),
                AllOf(HasSubstr("clip_grad_value"), HasSubstr("worker2")));
  }
}

TEST_P(OptimizerSuite, StepThatTakesTooLongAtTheOnlyOwnerIsDropped) {
  WorkerOptions options;
  options.rpc_timeout = std::chrono::milliseconds(1500);
  Group group = start(2, options);
  auto& worker = group[0];
  const auto leaf = worker.remote<make_leaf>("worker1", 1.0);
  DistributedOptimizer<SGD> optimizer(worker, {leaf}, SGDOptions(1));
  Context context(worker);
  context.backward({leaf.to_here().sum()});

  // As if another optimizer were in the middle of a step.
  auto& locks = detail::WorkerCore::of(group[1]).optim().locks();
  const optim::StepId other{~uint64_t{0}, 1};
  ASSERT_TRUE(locks.try_lock(other, {reinterpret_cast<const void*>(leaf.rpc_sync<address_of>())}));
  EXPECT_THAT(message_of<Timeout>([&] { optimizer.step(context); }),
              AllOf(HasSubstr("step 1"), HasSubstr("worker1"), HasSubstr("no parameter has moved")));
  locks.unlock(other);
  EXPECT_TRUE(at::equal(leaf.rpc_sync<value_of>(), make_leaf(1).detach()));
  optimizer.step(context);
  EXPECT_TRUE(at::equal(leaf.rpc_sync<value_of>(), make_leaf(0).detach()));
}

TEST_P(OptimizerSuite, OptimizersThatShareParametersTakeTurns) {
  Group group = start(3);
  const auto a = group[0].remote<make_leaf>("worker1", 0.0);
  const auto b = group[0].remote<make_leaf>("worker2", 0.0);
  constexpr int steps = 20;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; rank++) {
    threads.emplace_back([&, rank] {
      auto& worker = group[0];
      DistributedOptimizer<SGD> optimizer(worker, rank % 2 ? std::vector{a, b} : std::vector{b, a}, SGDOptions(1));
      for (int i = 0; i < steps; i++) {
        Context context(worker);
        context.backward({a.to_here().sum() + b.to_here().sum()});
        optimizer.step(context);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& each : {a, b}) {
    EXPECT_TRUE(at::equal(each.rpc_sync<value_of>(), make_leaf(-3.0 * steps).detach())) << each.rpc_sync<value_of>();
  }
}

TEST_P(OptimizerSuite, LeavesNothingBehind) {
  Group group = start(2);
  {
    const auto far = group[0].remote<make_leaf>("worker1", 1.0);
    DistributedOptimizer<SGD> optimizer(group[0], {far}, SGDOptions(0.5));
    Context context(group[0]);
    context.backward({far.to_here().sum()});
    optimizer.step(context);
  }
  for (int rank : {0, 1}) {
    EXPECT_TRUE(eventually([&] { return group[rank].debug().empty(); })) << group[rank].debug();
  }
}

INSTANTIATE_TEST_SUITE_P(Each, OptimizerSuite, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace farad::test
