// Hooks on tensors that came from elsewhere: what they see, and what they change.

#include <vector>

#include "suites/backward_suite.h"

namespace farad::test {
namespace {

TEST_P(BackwardSuite, HooksOnAResultSeeItsGradientAndChangeWhatGoesBack) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    const Tensor a = leaf(1), b = leaf(2), w = leaf(3);
    Context context(group[0]);
    const auto y = group[0].rpc_sync<multiply>("worker1", a, b);
    Tensor seen;
    y.register_hook([&](const Tensor& gradient) {
      seen = gradient.detach().clone();
      return gradient * 2;
    });
    context.backward({(y * w).sum() + y.sum()}, {.mode = mode});
    expect_equal(seen, (w + 1).detach());  // The sum of all that comes, once.
    expect_gradient(context, a, ((w + 1) * 2 * b).detach());
  }
}

TEST_P(BackwardSuite, AResultRetainsItsGradientIfItIsAskedTo) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    const Tensor a = leaf(1), b = leaf(2), w = leaf(3);
    Context context(group[0]);
    const auto y = group[0].rpc_sync<multiply>("worker1", a, b);
    y.retain_grad();
    context.backward({(y * w).sum()}, {.mode = mode});
    expect_equal(y.grad(), w.detach());
    expect_gradient(context, a, (w * b).detach());
    EXPECT_FALSE(a.grad().defined());
  }
}

static Tensor seen_there, kept_there;

Tensor multiply_and_watch(Tensor a, Tensor b) {
  a.register_hook([](const Tensor& gradient) {
    seen_there = gradient.detach().clone();
    return gradient + 1;
  });
  b.retain_grad();
  kept_there = b;
  return a * b;
}

TEST_P(BackwardSuite, HooksOnArgumentsRunWhereTheyWereReceived) {
  for (auto mode : {Mode::Smart, Mode::Fast}) {
    Group group = start(2);
    const Tensor a = leaf(1), b = leaf(2);
    Context context(group[0]);
    context.backward({group[0].rpc_sync<multiply_and_watch>("worker1", a, b).sum()}, {.mode = mode});
    expect_gradient(context, a, (b + 1).detach());
    expect_gradient(context, b, a.detach());
    expect_equal(seen_there, b.detach());
    expect_equal(kept_there.grad(), a.detach());
    kept_there.reset();
  }
}

}  // namespace
}  // namespace farad::test
