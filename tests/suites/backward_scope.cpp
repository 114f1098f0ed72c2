// Where a context is current, how it ends, and what of it may not be mixed with another.

#include <thread>

#include "suites/backward_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

Tensor square_at(int to, Tensor x) { return Worker::current().rpc_sync<multiply>(to, x, x); }

// --- Current ---

TEST_P(BackwardSuite, ContextsDoNotNest) {
  Group group = start(2);
  Context context(group[0]);
  const auto id = std::to_string(context.id());
  EXPECT_THAT(message_of<Error>([&] { Context other(group[0]); }), AllOf(HasSubstr(id), HasSubstr("nest")));
  EXPECT_THAT(message_of<Error>([&] { ContextScope scope(context); }), HasSubstr(id));
  EXPECT_EQ(current_context_id(), context.id());
}

TEST_P(BackwardSuite, OneThreadMayHaveAContextForEachOfItsWorkers) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context here(group[0]), there(group[1]);
  EXPECT_NE(here.id(), there.id());
  const auto x = group[0].rpc_sync<multiply>("worker1", a, b);
  const auto y = group[1].rpc_sync<multiply>("worker0", a, a);
  here.backward({x.sum()});
  there.backward({y.sum()});
  expect_gradient(here, a, b.detach());
  expect_gradient(there, a, (a * 2).detach());
}

TEST_P(BackwardSuite, ContextEndsWithItsScopeAndTheNextIsAnother) {
  Group group = start(2);
  int64_t first = 0;
  {
    Context context(group[0]);
    first = context.id();
    EXPECT_EQ(current_context_id(), first);
  }
  EXPECT_EQ(current_context_id(), 0);
  Context context(group[0]);
  EXPECT_NE(context.id(), first);
}

TEST_P(BackwardSuite, ContextThatEndedOnAnotherThreadDoesNotStandInTheWay) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  auto first = std::make_unique<Context>(group[0]);
  std::thread([&] { first.reset(); }).join();
  Context context(group[0]);
  EXPECT_EQ(current_context_id(), context.id());
  context.backward({group[0].rpc_sync<multiply>("worker1", a, b).sum()});
  expect_gradient(context, a, b.detach());
}

TEST_P(BackwardSuite, MovedContextGoesOn) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context first(group[0]);
  const auto id = first.id();
  Context context = std::move(first);
  EXPECT_EQ(context.id(), id);
  context.backward({group[0].rpc_sync<multiply>("worker1", a, b).sum()});
  expect_gradient(context, a, b.detach());
}

TEST_P(BackwardSuite, NewThreadsStartWithoutContextAndMayEnterOne) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  Tensor recorded_there;
  std::thread([&] {
    EXPECT_EQ(current_context_id(), 0);
    EXPECT_TRUE(group[0].rpc_sync<multiply>("worker1", a, b).is_leaf());
    {
      ContextScope scope(context);
      EXPECT_EQ(current_context_id(), context.id());
      recorded_there = group[0].rpc_sync<multiply>("worker1", a, b);
    }
    EXPECT_EQ(current_context_id(), 0);
  }).join();
  context.backward({recorded_there.sum()});
  expect_gradient(context, a, b.detach());
}

TEST_P(BackwardSuite, RemoteFunctionsKnowTheContextOfTheirCaller) {
  Group group = start(3);
  constexpr auto ask = [] { return current_context_id(); };
  constexpr auto ask_on = [] { return Worker::current().rpc_sync<[] { return current_context_id(); }>("worker2"); };
  EXPECT_EQ(group[0].rpc_sync<ask>("worker1"), 0);
  Context context(group[0]);
  EXPECT_EQ(group[0].rpc_sync<ask>("worker1"), context.id());
  EXPECT_EQ(group[0].rpc_sync<ask>("worker0"), context.id());
  EXPECT_EQ(group[0].rpc_sync<ask_on>("worker1"), context.id());
  EXPECT_EQ(group[1].rpc_sync<ask>("worker0"), 0) << "another worker's calls are not of it";
}

// --- What may not be mixed ---

TEST_P(BackwardSuite, ReachingACallOfAnotherContextIsAnErrorThatNamesBoth) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context other(group[0]), context(group[1]);
  const auto y = group[0].rpc_sync<multiply>("worker1", a, b);
  EXPECT_THAT(message_of<Error>([&] { context.backward({y.sum()}); }),
              AllOf(HasSubstr(std::to_string(other.id())), HasSubstr(std::to_string(context.id()))));
  EXPECT_TRUE(context.gradients().empty());
  other.backward({y.sum()});
  expect_gradient(other, a, b.detach());
}

TEST_P(BackwardSuite, ReachingACallOfAContextThatHasEndedIsAnErrorThatNamesBoth) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Tensor y;
  std::string before;
  {
    Context other(group[0]);
    before = std::to_string(other.id());
    y = group[0].rpc_sync<multiply>("worker1", a, b);
  }
  Context context(group[0]);
  EXPECT_THAT(message_of<Error>([&] { context.backward({y.sum()}); }),
              AllOf(HasSubstr(before), HasSubstr(std::to_string(context.id()))));
}

TEST_P(BackwardSuite, PlainBackwardThatReachesACallNamesTheOneToUse) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<multiply>("worker1", a, b).sum();
  EXPECT_THAT(message_of<Error>([&] { y.backward({}, /*retain_graph=*/true); }),
              AllOf(HasSubstr("Context::backward"), HasSubstr("multiply")));
  context.backward({y});
  expect_gradient(context, a, b.detach());
}

TEST_P(BackwardSuite, CallOfAnotherContextCountsOnlyWhereARootLeadsToIt) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Tensor earlier;
  int64_t first = 0;
  {
    Context context(group[0]);
    first = context.id();
    earlier = group[0].rpc_sync<multiply>("worker1", a, b);
  }
  Context context(group[0]);
  const auto beside = group[0].rpc_sync<multiply>("worker1", earlier, b);
  context.backward({group[0].rpc_sync<multiply>("worker1", a, a).sum()});
  expect_gradient(context, a, (a * 2).detach());
  EXPECT_THAT(context.dot(), HasSubstr("digraph"));
  EXPECT_THAT(
      message_of<Aborted>([&] { context.backward({beside.sum()}); }),
      AllOf(HasSubstr("context " + std::to_string(first)), HasSubstr("context " + std::to_string(context.id()))));
  expect_gradient(context, a, (a * 2).detach());
  expect_gradient(context, b, Tensor());
}

TEST_P(BackwardSuite, GradOfALeafIsNotTouched) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  const Tensor mine = at::full_like(a, 7);
  a.mutable_grad() = mine;
  Context context(group[0]);
  context.backward({group[0].rpc_sync<multiply>("worker1", a, b).sum()});
  EXPECT_TRUE(a.grad().is_same(mine));
  EXPECT_TRUE(at::equal(mine, at::full_like(a, 7)));
  EXPECT_FALSE(b.grad().defined());
}

TEST_P(BackwardSuite, RootsThatCannotBeginAPassAreRefused) {
  Group group = start(2);
  const Tensor a = leaf(1);
  Context context(group[0]);
  EXPECT_THAT(message_of<Error>([&] { context.backward(std::vector<Tensor>{}); }), HasSubstr("[autograd]"));
  EXPECT_THAT(message_of<Error>([&] { context.backward({a.detach().sum()}); }), HasSubstr("root 0"));
  EXPECT_THAT(message_of<Error>([&] { context.backward({a * 2}); }), HasSubstr("9 elements"));
  EXPECT_THAT(message_of<Error>([&] { context.backward({a * 2}, {.grad_tensors = {at::ones({2})}}); }),
              HasSubstr("root 0"));
}

// --- Its end ---

TEST_P(BackwardSuite, ContextsWithCallsInFlightLeaveNothingBehind) {  // L1
  Group group = start(3);
  const Tensor a = leaf(1), b = leaf(2);
  std::vector<Future<Tensor>> calls;
  for (int i = 0; i < 400; ++i) {
    Context context(group[0]);
    calls.push_back(group[0].rpc_async<multiply>("worker1", a, b));
    calls.push_back(group[0].rpc_async<square_at>("worker1", 2, a));
    calls.push_back(group[0].rpc_async<square_at>("worker2", 0, b));
  }
  for (auto& call : calls) EXPECT_EQ(call.wait().size(0), 3);
  EXPECT_TRUE(no_context_is_left(group)) << group[0].debug() << group[1].debug() << group[2].debug();
}

TEST_P(BackwardSuite, ContextsWhoseCallsFailOrAreCancelledLeaveNothingBehind) {
  Group group = start(2);
  constexpr auto refuse = [](Tensor x) -> Tensor {
    TORCH_CHECK(x.dim() == 7, "not of seven dimensions");
    return x;
  };
  for (int i = 0; i < 100; ++i) {
    Context context(group[0]);
    const auto refused = group[0].rpc_async<refuse>("worker1", leaf(1));
    group[0].rpc_async<multiply>("worker1", leaf(1), leaf(2)).cancel();
    if (i % 2) {
      EXPECT_THROW(refused.wait(), RemoteError);
    }
  }
  EXPECT_TRUE(no_context_is_left(group)) << group[0].debug() << group[1].debug();
}

TEST_P(BackwardSuite, ContextsAfterPassesLeaveNothingBehind) {
  Group group = start(3);
  for (int i = 0; i < 50; ++i) {
    Context context(group[0]);
    const auto y = group[0].rpc_sync<square_at>("worker1", 2, leaf(1));
    context.backward({y.sum()}, {.create_graph = i % 2 == 0});
  }
  EXPECT_TRUE(no_context_is_left(group)) << group[0].debug() << group[1].debug() << group[2].debug();
}

TEST_P(BackwardSuite, ContextMayOutliveItsWorker) {
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<multiply>("worker1", a, b).sum();
  context.backward({y}, {.retain_graph = true});
  group.drop(0);
  EXPECT_THROW(context.backward({y}), Error);
  expect_gradient(context, a, b.detach());  // What it has come to is still there.
  EXPECT_EQ(context.gradients().size(), 2u);
}

static Door* held;
Tensor double_behind_the_door(Tensor x) {
  held->pass();
  return x * 2;
}

TEST_P(BackwardSuite, CallThatTimesOutTakesNoPart) {
  Door door;
  held = &door;
  Group group = start(2);
  const Tensor a = leaf(1), b = leaf(2);
  {
    Context context(group[0]);
    EXPECT_THROW(group[0].with({.timeout = 20ms}).rpc_sync<double_behind_the_door>("worker1", a), Timeout);
    const auto y = group[0].rpc_sync<multiply>("worker1", a, b);
    context.backward({y.sum()}, {.retain_graph = true});
    expect_gradient(context, a, b.detach());
    door.open();  // The late result is of no pass, and of none that follows.
    context.backward({y.sum()});
    expect_gradient(context, a, (b * 2).detach());
  }
  EXPECT_TRUE(no_context_is_left(group)) << group[0].debug() << group[1].debug();
}

}  // namespace
}  // namespace farad::test
