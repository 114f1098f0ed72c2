// Gradients of gradients, over calls, against the same program in one process.

#include <torch/csrc/autograd/autograd.h>

#include "suites/backward_suite.h"

namespace farad::test {
namespace {

using Tensors = std::vector<Tensor>;

static Tensor weights;  // At whoever uses them.

Tensor layer(Tensor x) { return (x.mm(weights)).tanh(); }
Tensor layer_at(int to, Tensor x) { return Worker::current().rpc_sync<layer>(to, x * x); }
Tensor cube(Tensor x) { return x * x * x; }

/// Two layers, the second of them behind two hops.
Tensor far_model(Worker& worker, Tensor x) {
  return worker.rpc_sync<layer_at>("worker1", 2, worker.rpc_sync<layer>("worker1", x));
}
Tensor near_model(Tensor x) {
  const Tensor y = layer(x);
  return layer(y * y);
}

Tensors near_grad(Tensor output, Tensors inputs, bool create_graph) {
  return torch::autograd::grad({output}, inputs, {}, create_graph, create_graph, /*allow_unused=*/true);
}

TEST_P(BackwardSuite, GradIsThatOfOneProcessAndAddsNothingAnywhere) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3);
    weights = leaf(-0.3);
    const Tensor x = leaf(0.2), unused = leaf(1);
    Context context(group[0]);
    const auto inner = group[0].rpc_sync<layer>("worker1", x);
    const auto y = group[0].rpc_sync<layer_at>("worker1", 2, inner).sum();
    const auto gradients_here = grad(context, {y}, {x, unused, inner}, {.mode = mode});
    const Tensor near_inner = layer(x);
    const auto expected = near_grad(layer(near_inner * near_inner).sum(), {x, near_inner}, false);
    expect_close(gradients_here[0], expected[0]);
    EXPECT_FALSE(gradients_here[1].defined());
    expect_close(gradients_here[2], expected[1]);
    for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(gradients(group[rank], context.id()).empty()) << rank;
  }
}

TEST_P(BackwardSuite, GradientsOfCreateGraphCanBeDifferentiated) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3);
    weights = leaf(-0.3);
    const Tensor x = leaf(0.2);
    Context context(group[0]);
    context.backward({far_model(group[0], x).pow(2).sum()}, {.create_graph = true, .mode = mode});
    const Tensor first = context.gradient(x);
    ASSERT_TRUE(first.requires_grad());
    const auto second = grad(context, {first.pow(2).sum()}, {x}, {.mode = mode});

    const auto near_first = near_grad(near_model(x).pow(2).sum(), {x}, true);
    expect_close(first, near_first[0]);
    expect_close(second[0], near_grad(near_first[0].pow(2).sum(), {x}, false)[0]);
  }
}

TEST_P(BackwardSuite, GradientPenaltyReachesTheWeightsOfEveryWorker) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3);
    weights = leaf(-0.3);
    const Tensor x = leaf(0.2);
    Context context(group[0]);
    const auto y = far_model(group[0], x).sum();
    const auto gradient = grad(context, {y}, {x}, {.create_graph = true, .mode = mode})[0];
    context.backward({y + (gradient.norm() - 1).pow(2)}, {.mode = mode});

    const auto near_y = near_model(x).sum();
    const auto near_gradient = near_grad(near_y, {x}, true)[0];
    const auto expected = near_grad(near_y + (near_gradient.norm() - 1).pow(2), {x, weights}, false);
    expect_close(context.gradient(x), expected[0]);
    expect_close(gradient_everywhere(group, context, weights), expected[1]);
  }
}

TEST_P(BackwardSuite, HessianVectorProductIsThatOfOneProcess) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3);
    weights = leaf(-0.3);
    const Tensor x = leaf(0.2), vector = leaf(0.7).detach();
    Context context(group[0]);
    const auto loss = far_model(group[0], x).pow(2).sum();
    const auto gradient = grad(context, {loss}, {x}, {.create_graph = true, .mode = mode})[0];
    const auto product = grad(context, {gradient}, {x}, {.grad_tensors = {vector}, .mode = mode})[0];

    const auto near_gradient = near_grad(near_model(x).pow(2).sum(), {x}, true)[0];
    expect_close(product, torch::autograd::grad({near_gradient}, {x}, {vector})[0]);
    EXPECT_TRUE(context.gradients().empty());
  }
}

TEST_P(BackwardSuite, EveryOrderIsExact) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    const Tensor x = leaf(1);
    Context context(group[0]);
    Tensor y = group[0].rpc_sync<cube>("worker1", group[0].rpc_sync<cube>("worker1", x));
    y = y * y;  // x^18. Each of its derivatives needs the call, which is what FAST asks for.
    double factor = 1;
    for (int order = 1; order <= 5; ++order) {
      y = grad(context, {y.sum()}, {x}, {.create_graph = true, .mode = mode})[0];
      factor *= 19 - order;
      expect_close(y, (x.pow(18 - order) * factor).detach());
    }
  }
}

TEST_P(BackwardSuite, SecondPassOverARecordedPassNeedsNoFurtherCall) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    weights = leaf(-0.3);
    const Tensor x = leaf(0.2);
    Context context(group[0]);
    const auto y = group[0].rpc_sync<layer>("worker1", x).pow(2).sum();
    context.backward({y}, {.create_graph = true, .mode = mode});
    const Tensor first = context.gradient(x);
    context.backward({first.sum()}, {.mode = mode});

    const auto near_first = near_grad(layer(x).pow(2).sum(), {x, weights}, true);
    const auto second = near_grad(near_first[0].sum(), {x, weights}, false);
    expect_close(context.gradient(x), near_first[0] + second[0]);
    expect_close(gradient_everywhere(group, context, weights), near_first[1] + second[1]);
  }
}

TEST_P(BackwardSuite, FastPassesNeedNotUseTheGradientsOfEarlierOnes) {
  Group group = start(3);
  weights = leaf(-0.3);
  const Tensor x = leaf(0.2);
  Context context(group[0]);
  const auto y = far_model(group[0], x).pow(2).sum();
  const auto near_y = near_model(x).pow(2).sum();
  for (auto first : {Mode::Smart, Mode::Fast}) {
    const auto gradient = grad(context, {y}, {x}, {.create_graph = true, .mode = first})[0];
    expect_close(gradient.detach(), near_grad(near_y, {x}, true)[0].detach());
    const auto again = grad(context, {y}, {x}, {.retain_graph = true, .mode = Mode::Fast})[0];
    expect_close(again, gradient.detach());
  }
}

TEST_P(BackwardSuite, FastTakesRootGradientsThatRequireOneThemselves) {
  Group group = start(2);
  weights = leaf(-0.3);
  const Tensor x = leaf(0.2), vector = leaf(0.7);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<layer>("worker1", x);
  context.backward({y}, {.grad_tensors = {vector}, .retain_graph = true, .mode = Mode::Fast});
  const auto near = torch::autograd::grad({layer(x)}, {x}, {vector.detach()})[0];
  expect_close(context.gradient(x), near);
  context.backward({y}, {.grad_tensors = {vector}, .mode = Mode::Fast});
  expect_close(context.gradient(x), near * 2);
}

/// The callee differentiates within the call, and its result is a gradient.
Tensor slope(Tensor x) { return torch::autograd::grad({cube(x).sum()}, {x}, {}, true, true)[0]; }

TEST_P(BackwardSuite, GradientTakenWithinACallIsDifferentiable) {
  Group group = start(2);
  const Tensor x = leaf(1);
  Context context(group[0]);
  context.backward({group[0].rpc_sync<slope>("worker1", x * 2).sum()});
  expect_close(context.gradient(x), (x * 24).detach());
}

TEST_P(BackwardSuite, GradRefusesWhatItCannotDo) {
  Group group = start(2);
  const Tensor x = leaf(1);
  Context context(group[0]);
  EXPECT_THAT(message_of<Error>([&] { grad(context, {x.sum()}, {x}, {.inputs = {x}}); }),
              testing::HasSubstr("options.inputs"));
  EXPECT_THAT(message_of<Error>([&] { grad(context, {x.sum()}, {x.detach()}); }), testing::HasSubstr("input 0"));
}

}  // namespace
}  // namespace farad::test
