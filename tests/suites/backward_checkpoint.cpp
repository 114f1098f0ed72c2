// Functions that are computed again in the backward pass, over calls, against the same program in one process.

#include <ATen/ops/dropout.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <memory>

#include "suites/backward_suite.h"

namespace farad::test {
namespace {

static Tensor weights;            // At whoever uses them.
static std::atomic<int> runs{0};  // of layer()
static std::atomic<bool> failing{false};

Tensor layer(Tensor x) {
  ++runs;
  return x.mm(weights).tanh();
}
Tensor failing_layer(Tensor x) {
  auto y = layer(x);
  if (failing && y.requires_grad()) {
    y.register_hook([](Tensor) -> Tensor { throw std::runtime_error("the hook threw"); });
  }
  return y;
}
Tensor far_layer(Tensor x) { return Worker::current().rpc_sync<layer>("worker2", x * x); }
Tensor checkpointed_layer(Tensor x) {
  return checkpoint([](Tensor input) { return Worker::current().rpc_sync<layer>("worker2", input * input); }, x);
}
/// Uses one call, and not the other.
Tensor half_used(Worker& worker, Tensor x) {
  worker.rpc_sync<layer>("worker1", x);
  return worker.rpc_sync<layer>("worker1", x + 1);
}

Tensor near_layers(Tensor x) {
  const auto y = x.mm(weights).tanh();
  return (y * y).mm(weights).tanh();
}

/// Two layers at other workers, computed again.
Tensor far_layers(Worker& worker, Tensor x) {
  return checkpoint(
      [&](Tensor input) { return worker.rpc_sync<far_layer>("worker1", worker.rpc_sync<layer>("worker1", input)); }, x);
}

TEST_P(BackwardSuite, CheckpointOverCallsGivesWhatOneProcessGives) {
  for (const auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3);
    weights = leaf(-0.3);
    const Tensor x = leaf(0.2);
    Context context(group[0]);
    runs = 0;
    const auto loss = far_layers(group[0], x).sum();
    EXPECT_EQ(runs, 2);
    context.backward({loss}, {.mode = mode});
    EXPECT_EQ(runs, 4) << "computed again, once";
    const auto expected = torch::autograd::grad({near_layers(x).sum()}, {x, weights});
    expect_close(context.gradient(x), expected[0]);
    expect_close(gradient_everywhere(group, context, weights), expected[1]);
    EXPECT_EQ(context.gradients().size(), 1u) << "of x, and of nothing that was only made to compute again";
  }
}

TEST_P(BackwardSuite, CheckpointRecordsNothingUntilItIsComputedAgain) {
  Group group = start(3);
  weights = leaf(-0.3);
  Context context(group[0]);
  const auto loss = far_layers(group[0], leaf(0.2)).sum();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(recorded(group[rank]), 0u) << rank;
  context.backward({loss});
  EXPECT_EQ(recorded(group[0]), 0u) << "and keeps nothing of it";
}

TEST_P(BackwardSuite, CheckpointInACalledFunctionGivesWhatOneProcessGives) {
  for (const auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3);
    weights = leaf(-0.3);
    const Tensor x = leaf(0.2);
    Context context(group[0]);
    const auto loss = group[0].rpc_sync<checkpointed_layer>("worker1", x.tanh()).sum();
    context.backward({loss}, {.mode = mode});
    const auto y = x.tanh();
    const auto expected = torch::autograd::grad({(y * y).mm(weights).tanh().sum()}, {x, weights});
    expect_close(context.gradient(x), expected[0]);
    expect_close(gradient_everywhere(group, context, weights), expected[1]);
  }
}

TEST_P(BackwardSuite, CheckpointsNest) {
  Group group = start(3);
  weights = leaf(-0.3);
  const Tensor x = leaf(0.2);
  Context context(group[0]);
  const auto loss =
      checkpoint(
          [&](Tensor input) {
            const auto y = checkpoint([&](Tensor inner) { return group[0].rpc_sync<layer>("worker2", inner); }, input);
            return group[0].rpc_sync<checkpointed_layer>("worker1", y);
          },
          x)
          .sum();
  context.backward({loss});
  const auto expected = torch::autograd::grad({near_layers(x).sum()}, {x, weights});
  expect_close(context.gradient(x), expected[0]);
  expect_close(gradient_everywhere(group, context, weights), expected[1]);
}

TEST_P(BackwardSuite, GradientsOfACheckpointAreNotSeenIfThePassFails) {
  Group group = start(3);
  weights = leaf(-0.3);
  const Tensor x = leaf(0.2);
  {
    Context context(group[0]);
    failing = true;
    // The first layer's backward runs last, after the checkpoint has been through all of its pass.
    const auto loss = far_layers(group[0], group[0].rpc_sync<failing_layer>("worker1", x)).sum();
    EXPECT_THROW(context.backward({loss}, {.retain_graph = true}), Aborted);
    failing = false;
    EXPECT_FALSE(context.gradient(x).defined());
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(gradients(group[rank], context.id()).empty()) << rank;
    }
  }
  EXPECT_TRUE(no_context_is_left(group));
}

TEST_P(BackwardSuite, AnErrorInACheckpointFailsThePassAndSaysWhat) {
  Group group = start(3);
  weights = leaf(-0.3);
  Context context(group[0]);
  failing = true;
  const auto loss =
      checkpoint([&](Tensor input) { return group[0].rpc_sync<failing_layer>("worker1", input); }, leaf(0.2)).sum();
  try {
    context.backward({loss});
    FAIL() << "it passed";
  } catch (const Aborted& error) {
    EXPECT_NE(std::string(error.what()).find("the hook threw"), std::string::npos) << error.what();
  }
  failing = false;
}

TEST_P(BackwardSuite, ACheckpointThatCannotBeComputedAgainKeepsNothingAnywhere) {
  for (const auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    weights = leaf(-0.3);
    Context context(group[0]);
    bool again = false;
    const auto function = [&](Tensor input) {
      const auto y = group[0].rpc_sync<layer>("worker1", input);
      if (again) throw std::runtime_error("not again");
      return y;
    };
    const auto loss = checkpoint(function, leaf(0.2)).sum();
    again = true;
    EXPECT_THAT(message_of<Aborted>([&] { context.backward({loss}, {.mode = mode}); }),
                testing::HasSubstr("not again"));
    EXPECT_TRUE(eventually([&] { return recorded(group[0]) + recorded(group[1]) == 0; }))
        << group[0].debug() << group[1].debug();
  }
}

static Door* held;
static std::atomic<bool> waiting{false};

/// Calls further, and waits at the door when it is run again.
Tensor checkpoint_behind_the_door(Tensor x) {
  return checkpoint(
      [](Tensor input) {
        const auto y = Worker::current().rpc_sync<layer>("worker2", input);
        if (waiting) held->pass();
        return y;
      },
      x);
}

TEST_P(BackwardSuite, ACheckpointWhosePassEndsWhileItIsComputedAgainKeepsNothingAnywhere) {
  for (const auto mode : {Mode::Smart, Mode::Fast}) {
    Door door;
    held = &door;
    Group group = start(3);
    weights = leaf(-0.3);
    {
      Context context(group[0]);
      const auto loss = group[0].rpc_sync<checkpoint_behind_the_door>("worker1", leaf(0.2)).sum();
      waiting = true;
      EXPECT_THROW(context.backward({loss}, {.mode = mode, .timeout = std::chrono::milliseconds(200)}), Aborted);
      ASSERT_TRUE(door.has_come());
      EXPECT_TRUE(eventually([&] { return group[1].debug().contexts.at(0).passes.empty(); }));
      waiting = false;
      EXPECT_GT(recorded(group[2]), 0u) << "or this shows nothing";
      door.open();
      EXPECT_TRUE(eventually([&] { return recorded(group[2]) == 0; })) << group[2].debug();
    }
    EXPECT_TRUE(no_context_is_left(group));
  }
}

/// The pass is committed where messages are taken in, which must outlive it.
TEST_P(BackwardSuite, CheckpointsWhoseLeafWasGivenOtherDataInBetweenAreAnErrorByName) {
  Group group = start(2);
  weights = leaf(-0.3);
  const Tensor x = leaf(0.2);
  Context context(group[0]);
  const auto pass = [&] {
    const auto far = [&](Tensor input) { return group[0].rpc_sync<layer>("worker1", input); };
    context.backward({checkpoint(far, x).sum()});
  };
  pass();
  EXPECT_FALSE(gradients(group[1], context.id()).empty());
  const auto is_forgotten = [] { return !torch::autograd::impl::try_get_grad_accumulator(weights); };
  EXPECT_TRUE(eventually(is_forgotten)) << "a graph that still leads there would have it as it was";
  weights.set_data(at::ones({3, 2}, at::kDouble));
  pass();
  EXPECT_THAT(
      message_of<Error>([&] { gradients(group[1], context.id()); }),
      testing::AllOf(testing::HasSubstr("worker1"), testing::HasSubstr("[3, 3]"), testing::HasSubstr("[3, 2]")));
  pass();
  EXPECT_TRUE(context.gradient(x).defined());
}

TEST_P(BackwardSuite, ACheckpointThatUsesHalfOfItsCallsPassesInSmartAndIsNamedInFast) {
  Group group = start(2);
  weights = leaf(-0.3);
  const Tensor x = leaf(0.2);
  const auto run = [&](Context& context, Mode mode) {
    const auto loss = checkpoint([&](Tensor input) { return half_used(group[0], input); }, x).sum();
    context.backward({loss}, {.mode = mode});
  };
  {
    Context context(group[0]);
    run(context, Mode::Smart);
    expect_close(context.gradient(x), torch::autograd::grad({(x + 1).mm(weights).tanh().sum()}, {x})[0]);
  }
  Context context(group[0]);
  try {
    run(context, Mode::Fast);
    FAIL() << "it passed";
  } catch (const Aborted& error) {
    EXPECT_NE(std::string(error.what()).find("layer"), std::string::npos) << error.what();
  }
}

TEST_P(BackwardSuite, GradThroughACheckpointReachesWhatItsFunctionUses) {
  Group group = start(2);
  weights = leaf(-0.3);
  const Tensor x = leaf(0.2), factor = leaf(0.4);
  Context context(group[0]);
  const auto loss =
      (checkpoint([&](Tensor input) { return group[0].rpc_sync<layer>("worker1", input * factor); }, x) * factor).sum();
  const auto gradients_here = grad(context, {loss}, {x, factor});
  const auto expected = torch::autograd::grad({((x * factor).mm(weights).tanh() * factor).sum()}, {x, factor});
  expect_close(gradients_here[0], expected[0]);
  expect_close(gradients_here[1], expected[1]);
  EXPECT_TRUE(context.gradients().empty());
  EXPECT_TRUE(gradients(group[1], context.id()).empty());
}

TEST(Checkpoint, IsAsWithoutItUnderAPlainBackward) {
  const Tensor x = leaf(0.2), w = leaf(-0.3);
  const auto function = [&](Tensor a, double factor) { return std::pair(a.mm(w).tanh() * factor, a * a); };
  const auto [first, second] = checkpoint(function, x, 2.0);
  (first.sum() + 3 * second.sum()).backward();
  const auto [a, b] = function(x, 2.0);
  const auto expected = torch::autograd::grad({a.sum() + 3 * b.sum()}, {x, w});
  expect_close(x.grad(), expected[0]);
  expect_close(w.grad(), expected[1]);
}

TEST_P(BackwardSuite, CheckpointTakesFunctionsAndInputsThatCannotBeCopied) {
  Group group = start(2);
  weights = leaf(-0.3);
  const Tensor x = leaf(0.2);
  Context context(group[0]);
  auto own = std::make_unique<int>(0);
  const int& times = *own;
  auto function = [own = std::move(own)](Worker& worker, Tensor input, std::unique_ptr<double>& factor) {
    ++*own;
    return worker.rpc_sync<layer>("worker1", input) * *factor;
  };
  const auto y = checkpoint(std::move(function), group[0], x, std::make_unique<double>(2));
  EXPECT_EQ(times, 1);
  context.backward({y.sum()}, {.retain_graph = true});
  EXPECT_EQ(times, 2);
  expect_close(context.gradient(x), torch::autograd::grad({(x.mm(weights).tanh() * 2).sum()}, {x})[0]);
}

TEST(Checkpoint, DrawsTheSameRandomNumbersAgain) {
  const Tensor x = at::ones({1000}, at::kDouble).set_requires_grad(true);
  const auto y = checkpoint([](Tensor a) { return at::dropout(a * a, 0.5, /*train=*/true); }, x);
  const auto next = at::rand({1});
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), 2 * y.detach())) << "another mask";
  EXPECT_FALSE(at::equal(next, at::rand({1}))) << "the backward pass must not set them back";
}

TEST(Checkpoint, RefusesCreateGraphByName) {
  const Tensor x = leaf(0.2);
  const auto y = checkpoint([](Tensor a) { return a * a; }, x);
  try {
    torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    FAIL() << "it passed";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("checkpoint"), std::string::npos) << error.what();
  }
}

TEST(Checkpoint, NoticesAnInputThatWasChangedInBetween) {
  const Tensor x = leaf(0.2);
  const auto a = x * 1;
  const auto y = checkpoint([](Tensor t) { return t * t; }, a);
  a.mul_(2);
  EXPECT_THROW(y.sum().backward(), c10::Error);
}

}  // namespace
}  // namespace farad::test
