// The programs that hang, leak or go wrong with other systems (docs/design/backward.md), and what they do here.

#include "suites/backward_suite.h"

namespace farad::test {
namespace {

Tensor add(Tensor a, Tensor b) { return a + b; }
Tensor first_only(Tensor a, Tensor) { return a * 3; }
Tensor cut(Tensor x) { return x.mul(2).detach() + 1; }
double mean_of(Tensor x) { return x.mean().item<double>(); }

TEST_P(BackwardSuite, OneCallGivesTheGradientsOfOneProcess) {
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1), b = leaf(2), c = leaf(3);
  Context context(worker);
  auto product = worker.rpc_sync<multiply>("worker1", a, b);
  context.backward({(product * c).sum()});
  expect_gradient(context, a, (b * c).detach());
  expect_gradient(context, b, (a * c).detach());
  expect_gradient(context, c, (a * b).detach());
  EXPECT_FALSE(a.grad().defined());
}

TEST_P(BackwardSuite, CallThatIsNotUsedIsNotWaitedFor) {  // G1
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1), b = leaf(2), c = leaf(3);
  Context context(worker);
  auto d = worker.rpc_sync<add>("worker1", a, b);
  auto e = worker.rpc_sync<multiply>("worker1", b, c);
  context.backward({d.sum()});
  expect_gradient(context, a, at::ones_like(a));
  expect_gradient(context, b, at::ones_like(b));
  EXPECT_FALSE(context.gradient(c).defined());
  EXPECT_EQ(context.gradients().size(), 2u);
}

TEST_P(BackwardSuite, FastNamesTheCallThatIsNotUsed) {  // G1
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1), b = leaf(2), c = leaf(3);
  Context context(worker);
  auto d = worker.rpc_sync<add>("worker1", a, b);
  auto e = worker.rpc_sync<multiply>("worker1", b, c);
  const auto message = message_of<Error>([&] { context.backward({d.sum()}, {.mode = Mode::Fast}); });
  EXPECT_THAT(message, testing::HasSubstr("multiply"));
  EXPECT_EQ(context.gradients().size(), 0u);
}

TEST_P(BackwardSuite, FastNamesTheCallWhoseResultLeadsNowhere) {  // G3, G5, G7
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1), b = leaf(2);
  const auto error_of = [&](const std::function<Tensor()>& forward) {
    Context context(worker);
    const Tensor y = forward();
    const auto message = message_of<Aborted>([&] { context.backward({y.sum()}, {.mode = Mode::Fast}); });
    EXPECT_EQ(context.gradients().size(), 0u);
    return message;
  };
  EXPECT_THAT(error_of([&] { return worker.rpc_sync<cut>("worker1", a) + a; }), testing::HasSubstr("cut"));
  EXPECT_THAT(error_of([&] { return worker.rpc_sync<multiply>("worker1", a, a).detach() * b; }),
              testing::HasSubstr("multiply"));
  Tensor other;
  EXPECT_THAT(error_of([&] {
                other = worker.rpc_sync<multiply>("worker1", a, b);  // for a pass of its own, later
                return worker.rpc_sync<add>("worker1", a, b);
              }),
              testing::HasSubstr("multiply"));
}

TEST_P(BackwardSuite, FastNeedsNeitherEveryArgumentNorCallsUnderNoGrad) {  // G4, G6
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1), b = leaf(2);
  Context context(worker);
  const auto y = worker.rpc_sync<first_only>("worker1", a, b);
  {
    c10::NoGradGuard no_grad;
    worker.rpc_sync<mean_of>("worker1", y);
  }
  context.backward({y.sum()}, {.mode = Mode::Fast});
  expect_gradient(context, a, at::full_like(a, 3));
  EXPECT_FALSE(context.gradient(b).defined());
}

TEST_P(BackwardSuite, FastFinishesWhereEveryCallIsUsed) {
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1), b = leaf(2);
  Context context(worker);
  auto d = worker.rpc_sync<multiply>("worker1", a, b);
  context.backward({d.sum()}, {.mode = Mode::Fast});
  expect_gradient(context, a, b.detach());
}

TEST_P(BackwardSuite, CalleeThatDetachesCutsTheGraph) {  // G3
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1);
  Context context(worker);
  auto result = worker.rpc_sync<cut>("worker1", a);
  context.backward({(result + a).sum()});
  expect_gradient(context, a, at::ones_like(a));
}

TEST_P(BackwardSuite, IgnoredArgumentHasNoGradient) {  // G4
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1), b = leaf(2);
  Context context(worker);
  context.backward({worker.rpc_sync<first_only>("worker1", a, b).sum()});
  expect_gradient(context, a, at::full_like(a, 3));
  EXPECT_FALSE(context.gradient(b).defined());
}

TEST_P(BackwardSuite, TwoLossesOneBackwardEach) {  // G5
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1), b = leaf(2);
  Context context(worker);
  auto d = worker.rpc_sync<add>("worker1", a, b);
  auto e = worker.rpc_sync<multiply>("worker1", a, b);
  context.backward({d.sum()}, {.retain_graph = true});
  expect_gradient(context, a, at::ones_like(a));
  context.backward({e.sum()});
  expect_gradient(context, a, (b + 1).detach());
  expect_gradient(context, b, (a + 1).detach());
}

TEST_P(BackwardSuite, CallUnderNoGradTakesNoPart) {  // G6
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1), b = leaf(2);
  Context context(worker);
  auto product = worker.rpc_sync<multiply>("worker1", a, b);
  {
    c10::NoGradGuard no_grad;
    worker.rpc_sync<mean_of>("worker1", product);
    EXPECT_FALSE(worker.rpc_sync<multiply>("worker1", a, b).requires_grad());
  }
  context.backward({product.sum()});
  expect_gradient(context, a, b.detach());
}

TEST_P(BackwardSuite, DetachedResultIsNotWaitedFor) {  // G7
  Group group = start(2);
  auto& worker = group[0];
  const Tensor a = leaf(1), b = leaf(2);
  Context context(worker);
  auto y = worker.rpc_sync<multiply>("worker1", a, a).detach() * b;
  context.backward({y.sum()});
  expect_gradient(context, b, (a * a).detach());
  EXPECT_FALSE(context.gradient(a).defined());
}

}  // namespace
}  // namespace farad::test
