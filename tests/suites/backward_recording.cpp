// What is recorded: every way a tensor can take to another worker and back, and nothing else.

#include <farad/fields.h>
#include <farad/rref.h>

#include <map>
#include <optional>
#include <tuple>

#include "suites/backward_suite.h"

namespace farad::test {
namespace {

// --- Calls within calls ---

Tensor multiply_at(int to, Tensor a, Tensor b) { return Worker::current().rpc_sync<multiply>(to, a, b) + a; }

/// Goes round the group, doubling at each hop.
Tensor bounce(int hops, Tensor x) {
  auto& worker = Worker::current();
  if (hops == 0) return x * x;
  return worker.rpc_sync<bounce>((worker.rank() + 1) % worker.size(), hops - 1, x * 2);
}

TEST_P(BackwardSuite, NestedCallsGiveTheGradientsOfOneProcess) {
  Group group = start(3);
  const Tensor a = leaf(1), b = leaf(2);
  for (int to : {2, 0, 1}) {  // On to a third, back to the caller, and to the callee itself.
    Context context(group[0]);
    context.backward({group[0].rpc_sync<multiply_at>("worker1", to, a, b).sum()});
    expect_gradient(context, a, (b + 1).detach());
    expect_gradient(context, b, a.detach());
  }
  EXPECT_TRUE(no_context_is_left(group));
}

TEST_P(BackwardSuite, GradientsGoBackThroughFiftyHopsWithOneThreadEach) {  // L7
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(3, {.threads = 1});
    const Tensor x = leaf(1);
    Context context(group[0]);
    context.backward({group[0].rpc_sync<bounce>("worker1", 50, x).sum()}, {.mode = mode});
    expect_gradient(context, x, (x * std::exp2(101)).detach());
  }
}

TEST_P(BackwardSuite, CallsToOneselfAreRecordedToo) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<multiply>("worker0", a, b);
  context.backward({group[0].rpc_sync<multiply>("worker0", y, a).sum()});
  expect_gradient(context, a, (b * a * 2).detach());
  expect_gradient(context, b, (a * a).detach());
}

TEST_P(BackwardSuite, OperatorsByNameAreRecorded) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  context.backward({group[0].rpc_sync("worker1", "aten::mul", {a, b}).toTensor().sum()});
  expect_gradient(context, a, b.detach());
}

// --- References ---

static Tensor weights;  // At whoever makes a reference to them.

Tensor make_weights() { return weights; }
Tensor use(RRef<Tensor> factor, Tensor x) { return factor.to_here() * x; }
Tensor scale(Tensor& object, Tensor x) { return object * x; }
RRef<Tensor> product_here(Tensor a, Tensor b) { return RRef<Tensor>::local(Worker::current(), a * b); }

TEST_P(BackwardSuite, FetchedValueSendsItsGradientToItsOwner) {
  Group group = start(2);
  weights = leaf(3);
  const Tensor a = leaf(1);
  Context context(group[0]);
  const auto there = group[0].remote<make_weights>("worker1");
  context.backward({(there.to_here() * a).sum()});
  expect_gradient(context, a, weights.detach());
  expect_equal(gradient_at(group[1], context, weights), a.detach());
  EXPECT_FALSE(context.gradient(weights).defined()) << "it lives elsewhere";
}

TEST_P(BackwardSuite, ValueOfARemoteCallLeadsBackToItsArguments) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto product = group[0].remote<multiply>("worker1", a, b);
  context.backward({(product.to_here() + product.to_here()).sum()});
  expect_gradient(context, a, (b * 2).detach());
  expect_gradient(context, b, (a * 2).detach());
}

TEST_P(BackwardSuite, ReferenceAsAnArgumentIsFetchedByTheCallee) {
  Group group = start(3);
  weights = leaf(3);
  const Tensor a = leaf(1);
  Context context(group[0]);
  const auto there = group[0].remote<make_weights>("worker1");
  context.backward({group[0].rpc_sync<use>("worker2", there, a).sum()});
  expect_gradient(context, a, weights.detach());
  expect_equal(gradient_at(group[1], context, weights), a.detach());
  EXPECT_TRUE(gradients(group[2], context.id()).empty());
}

TEST_P(BackwardSuite, CallsOnAReferencedValueReachIt) {
  Group group = start(2);
  weights = leaf(3);
  const Tensor a = leaf(1);
  Context context(group[0]);
  const auto there = group[0].remote<make_weights>("worker1");
  const auto kept = there.remote<scale>(a);
  context.backward({(there.rpc_sync<scale>(a) + kept.to_here()).sum()});
  expect_gradient(context, a, (weights * 2).detach());
  expect_equal(gradient_at(group[1], context, weights), (a * 2).detach());
}

TEST_P(BackwardSuite, ReferenceAsAResultLeadsBackToTheArguments) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto product = group[0].rpc_sync<product_here>("worker1", a, b);
  context.backward({product.to_here().sum()});
  expect_gradient(context, a, b.detach());
}

TEST_P(BackwardSuite, OwnValueFetchedIsAResultOfItself) {
  Group group = start(1);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto here = RRef<Tensor>::local(group[0], a);
  context.backward({(here.to_here() * b).sum()});
  expect_gradient(context, a, b.detach());
}

// --- Tensors inside of other things ---

struct Batch {
  Tensor x;
  std::string label;
  std::vector<Tensor> more;
  FARAD_FIELDS(x, label, more)
};

Batch work_on(Batch batch) {
  return {batch.x * batch.more[0], batch.label, {batch.more[1] * 2, at::zeros({2}, at::kLong)}};
}
std::tuple<Tensor, std::optional<Tensor>> take_apart(std::map<std::string, Tensor> named, std::vector<Tensor> rest) {
  return {named.at("a") * named.at("b"), rest[1] * rest[2]};
}

TEST_P(BackwardSuite, TensorsInStructsAreRecorded) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2), c = leaf(3);
  Context context(group[0]);
  const auto result = group[0].rpc_sync<work_on>("worker1", Batch{a, "label", {b, c}});
  context.backward({(result.x + result.more[0]).sum()});
  expect_gradient(context, a, b.detach());
  expect_gradient(context, b, a.detach());
  expect_gradient(context, c, at::full_like(c, 2));
}

TEST_P(BackwardSuite, TensorsInContainersAreRecordedAndThoseWithoutGradientKeepTheirPlace) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2), c = leaf(3), constant = leaf(4).detach();
  Context context(group[0]);
  const auto [first, second] = group[0].rpc_sync<take_apart>(
      "worker1", std::map<std::string, Tensor>{{"a", a}, {"b", b}}, std::vector<Tensor>{{}, constant, c});
  context.backward({(first + *second).sum()});
  expect_gradient(context, a, b.detach());
  expect_gradient(context, b, a.detach());
  expect_gradient(context, c, constant);
  EXPECT_EQ(context.gradients().size(), 3u);
}

TEST_P(BackwardSuite, OneTensorGivenTwiceGetsTheSum) {
  Group group = start(2);
  const Tensor a = leaf(1);
  Context context(group[0]);
  context.backward({group[0].rpc_sync<multiply>("worker1", a, a).sum()});
  expect_gradient(context, a, (a * 2).detach());
}

// --- Results that come later ---

Future<Tensor> multiply_later(int to, Tensor a, Tensor b) {
  return Worker::current().rpc_async<multiply>(to, a, b).then([a](Tensor product) { return product + a; });
}

TEST_P(BackwardSuite, FutureResultsAreRecorded) {
  Group group = start(3);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  context.backward({group[0].rpc_sync<multiply_later>("worker1", 2, a, b).sum()});
  expect_gradient(context, a, (b + 1).detach());
  expect_gradient(context, b, a.detach());
}

TEST_P(BackwardSuite, ContinuationsAreRecordedInTheContextTheyWereMadeIn) {
  Group group = start(3);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  auto result = group[0]
                    .rpc_async<multiply>("worker1", a, b)
                    .then([](Tensor x) { return Worker::current().rpc_async<multiply>("worker2", x, x); })
                    .then([](Tensor x) { return std::pair(current_context_id(), x * 2); });
  const auto [id, y] = result.wait();
  EXPECT_EQ(id, context.id());
  context.backward({y.sum()});
  expect_gradient(context, a, (a * b * 4 * b).detach());
}

TEST_P(BackwardSuite, ContinuationsKeepTheGradModeTheyWereMadeIn) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto call = group[0].rpc_async<multiply>("worker1", a, b);
  const auto mode = [](Tensor) { return c10::GradMode::is_enabled(); };
  Future<bool> without = [&] {
    c10::NoGradGuard no_grad;
    return call.then(mode);
  }();
  EXPECT_FALSE(without.wait());
  EXPECT_TRUE(call.then(mode).wait());
}

static Promise<void>* told;
static Door* registered;
Future<Tensor> multiply_when_told(Tensor a, Tensor b) {
  auto product = told->future().then([=] { return Worker::current().rpc_async<multiply>("worker2", a, b); });
  registered->pass();
  return product;
}

TEST_P(BackwardSuite, ContinuationsOfAPromiseAreRecordedInTheContextTheyWereMadeIn) {
  Promise<void> promise;
  Door door;
  door.open();
  told = &promise;
  registered = &door;
  Group group = start(3);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto result = group[0].rpc_async<multiply_when_told>("worker1", a, b);
  ASSERT_TRUE(door.has_come());
  promise.set_value();
  context.backward({result.wait().sum()});
  expect_gradient(context, a, b.detach());
}

TEST_P(BackwardSuite, WhatCountsIsWhenACallWasMadeAndNotWhenItIsAwaited) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto with = group[0].rpc_async<multiply>("worker1", a, b);
  Future<Tensor> without = [&] {
    c10::NoGradGuard no_grad;
    return group[0].rpc_async<multiply>("worker1", a, b);
  }();
  EXPECT_FALSE(without.wait().requires_grad());
  c10::NoGradGuard no_grad;
  EXPECT_TRUE(with.wait().requires_grad());
}

// --- What is not recorded ---

Tensor weighted() { return weights * 2; }
bool grad_mode_there() { return c10::GradMode::is_enabled(); }
int64_t length_of(Tensor x) { return x.numel(); }

TEST_P(BackwardSuite, ResultThatRequiresGradientsOnlyAtTheCalleeIsRecorded) {
  Group group = start(2);
  weights = leaf(3);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<weighted>("worker1");
  ASSERT_TRUE(y.requires_grad());
  context.backward({(y * y).sum()});
  expect_equal(gradient_at(group[1], context, weights), (weights * 8).detach());
  EXPECT_TRUE(context.gradients().empty());
}

TEST_P(BackwardSuite, NothingIsRecordedUnderNoGradGuard) {
  Group group = start(2);
  weights = leaf(3);
  Context context(group[0]);
  c10::NoGradGuard no_grad;
  EXPECT_FALSE(group[0].rpc_sync<multiply>("worker1", leaf(1), leaf(2)).requires_grad());
  EXPECT_FALSE(group[0].remote<make_weights>("worker1").to_here().requires_grad());
  EXPECT_FALSE(group[0].rpc_sync<grad_mode_there>("worker1"));
  EXPECT_EQ(recorded(group[0]) + recorded(group[1]), 0u);
}

TEST_P(BackwardSuite, NothingIsRecordedForTensorsWithoutGradient) {
  Group group = start(2);
  Context context(group[0]);
  EXPECT_FALSE(group[0].rpc_sync<multiply>("worker1", leaf(1).detach(), at::ones({3, 3}, at::kLong)).requires_grad());
  EXPECT_EQ(recorded(group[0]) + recorded(group[1]), 0u);
}

TEST_P(BackwardSuite, ArgumentsAreRecordedWhereTheResultIsNoTensor) {
  Group group = start(2);
  const Tensor a = leaf(1);
  Context context(group[0]);
  EXPECT_EQ(group[0].rpc_sync<length_of>("worker1", a), 9);
  EXPECT_EQ(recorded(group[0]), 1u);
  EXPECT_EQ(recorded(group[1]), 1u);
  context.backward({a.sum()});
  expect_gradient(context, a, at::ones_like(a));
}

TEST_P(BackwardSuite, OutsideAContextResultsArriveAsLeaves) {
  Group group = start(2);
  const auto y = group[0].rpc_sync<multiply>("worker1", leaf(1), leaf(2));
  EXPECT_TRUE(y.requires_grad());
  EXPECT_TRUE(y.is_leaf());
  EXPECT_TRUE(group[0].debug().contexts.empty());
  EXPECT_TRUE(group[1].debug().contexts.empty());
  Context context(group[0]);
  context.backward({(y * y).sum()});
  expect_gradient(context, y, (y * 2).detach());
}

}  // namespace
}  // namespace farad::test
