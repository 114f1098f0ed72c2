// Calls that end before their function does.

#include <farad/worker.h>

#include <atomic>
#include <vector>

#include "suites/rpc_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;

int rank_here() { return Worker::current().rank(); }

static Door* held;

int64_t hold(int64_t x) {
  held->pass();
  return x;
}

RPC_TEST(CallWithoutReplyInTimeFailsAndNamesFunctionAndPeer) {
  Door here;
  held = &here;
  Group group = start(2);
  const auto caller = group[0].with({.timeout = 30ms});

  // What is given up before it began never begins, and so never replies; on a busy machine that takes several tries.
  EXPECT_TRUE(eventually([&] {
    for (const auto& text : {message_of<Timeout>([&] { caller.rpc_sync<hold>("worker1", 1); }),
                             message_of<Timeout>([&] { caller.rpc_async<hold>("worker1", 1).wait(); })}) {
      EXPECT_THAT(text, testing::AllOf(testing::StartsWith("[rpc]"), testing::HasSubstr("hold"),
                                       testing::HasSubstr("worker1"), testing::HasSubstr("30 ms")));
    }
    return here.came();
  }));
  here.open();  // Now late replies are sent, if somebody still thinks that they are wanted.

  EXPECT_EQ(group[0].rpc_sync<rank_here>("worker1"), 1);
}

RPC_TEST(EveryOneOfManyCallsEndsInItsTime) {
  Door here;
  held = &here;
  Group group = start(2);

  std::vector<Future<int64_t>> replies;
  for (int i = 0; i < 200; ++i) {
    replies.push_back(group[0].with({.timeout = std::chrono::milliseconds(1 + i % 7)}).rpc_async<hold>("worker1", 1));
    if (i % 10 != 9) continue;
    EXPECT_TRUE(eventually([&] { return replies[i].ready(); })) << i;
  }

  for (auto& reply : replies) EXPECT_THROW(reply.wait(), Timeout);
  here.open();
}

RPC_TEST(WorkersTimeoutHoldsForCallsThatSetNone) {
  Door here;
  held = &here;
  Group group = start(2, {.rpc_timeout = 30ms});

  EXPECT_THROW(group[0].rpc_sync<hold>("worker1", 1), Timeout);
  EXPECT_THROW(group[0].rpc_async<hold>("worker1", 1).wait(), Timeout);
  auto patient = group[0].with({.timeout = 0ms}).rpc_async<hold>("worker1", 5);
  EXPECT_FALSE(patient.wait_for(60ms));
  here.open();

  EXPECT_EQ(patient.wait(), 5);
}

static std::atomic<int> gave_up;

void run_until_cancelled() {
  held->pass();
  if (eventually(cancelled)) ++gave_up;
}

RPC_TEST(CancellingReachesTheFunction) {
  Door here;
  held = &here;
  here.open();
  gave_up = 0;
  Group group = start(2);
  auto reply = group[0].rpc_async<run_until_cancelled>("worker1");
  ASSERT_TRUE(here.has_come());

  reply.cancel();

  const auto named = testing::AllOf(testing::HasSubstr("run_until_cancelled"), testing::HasSubstr("worker1"));
  EXPECT_THAT(message_of<Cancelled>([&] { reply.wait(); }), named);
  EXPECT_TRUE(eventually([] { return gave_up == 1; }));

  auto next = group[0].rpc_async<run_until_cancelled>("worker1").then([] { return 1; });
  ASSERT_TRUE(here.has_come());
  next.cancel();
  EXPECT_THAT(message_of<Cancelled>([&] { next.wait(); }), named) << "also by what comes after it";
  EXPECT_TRUE(eventually([] { return gave_up == 2; }));
  EXPECT_EQ(group[0].rpc_sync<rank_here>("worker1"), 1);
}

/// A promise that a function gives the future of. Its test waits until somebody has cancelled it.
static Promise<int64_t>* returned;
Future<int64_t> return_later() {
  auto future = returned->future();
  held->pass();
  return future;
}

RPC_TEST(CancellingReachesTheFutureThatTheFunctionReturned) {
  Door here;
  held = &here;
  here.open();
  Group group = start(2);
  std::vector<std::function<void(Future<int64_t>&)>> ways = {
      [](auto& reply) { reply.cancel(); },
      [](auto& reply) { when_all({reply, reply}).cancel(); },
      [&](auto&) { group.drop(0); },
  };
  for (const auto& give_up : ways) {
    Promise<int64_t> promise;
    returned = &promise;
    bool told = false;
    promise.on_cancel([&] { told = Worker::current().rank() == 1; });
    auto reply = group[0].rpc_async<return_later>("worker1");
    ASSERT_TRUE(here.has_come());

    give_up(reply);

    EXPECT_TRUE(eventually([&] { return promise.future().ready(); }));
    EXPECT_THROW(promise.future().wait(), Cancelled);
    EXPECT_TRUE(told);
  }
}

RPC_TEST(OneOfManyThatWaitForAPromiseGivesUpForItselfOnly) {
  Door here;
  held = &here;
  here.open();
  Promise<int64_t> promise;
  returned = &promise;
  Group group = start(2);
  auto one = group[0].rpc_async<return_later>("worker1"), other = group[0].rpc_async<return_later>("worker1");
  ASSERT_TRUE(here.has_come(2));

  one.cancel();

  EXPECT_EQ(group[0].rpc_sync<rank_here>("worker1"), 1);
  promise.set_value(7);
  EXPECT_EQ(other.wait(), 7);
  EXPECT_THROW(one.wait(), Cancelled);
}

RPC_TEST(HookThatThrowsWhenACallIsGivenUpLosesNoReply) {
  Door here;
  held = &here;
  Group group = start(2);
  Promise<int64_t> promise;
  returned = &promise;
  promise.on_cancel([] { throw std::runtime_error("of a hook"); });
  auto reply = group[0].rpc_async<return_later>("worker1");
  ASSERT_TRUE(here.has_come());
  reply.cancel();
  EXPECT_EQ(group[0].rpc_sync<rank_here>("worker1"), 1) << "it has heard of that by now";
  here.open();

  EXPECT_TRUE(eventually([&] { return promise.future().ready(); }));
  group.each([](Worker& worker) { worker.close(); });  // It waits for nothing that is over.
}

RPC_TEST(TimeoutReachesTheFunction) {
  Door here;
  held = &here;
  here.open();
  gave_up = 0;
  Group group = start(2);

  const auto caller = group[0].with({.timeout = 20ms});

  // Until one began before its time was up.
  EXPECT_TRUE(eventually([&] {
    EXPECT_THROW(caller.rpc_sync<run_until_cancelled>("worker1"), Timeout);
    return here.came();
  }));
  EXPECT_TRUE(eventually([&] {
    EXPECT_THROW(caller.rpc_async<run_until_cancelled>("worker1").wait(), Timeout);
    return here.came();
  }));

  EXPECT_TRUE(eventually([] { return gave_up >= 2; }));
}

RPC_TEST(LossOfTheCallerReachesTheFunction) {
  Door here;
  held = &here;
  here.open();
  gave_up = 0;
  Group group = start(2);
  auto reply = group[0].rpc_async<run_until_cancelled>("worker1");
  ASSERT_TRUE(here.has_come());

  group.drop(0);

  EXPECT_TRUE(eventually([] { return gave_up == 1; }));
  EXPECT_THROW(reply.wait(), Closed);
}

RPC_TEST(NobodyIsCancelledOutsideOfRemoteFunctions) { EXPECT_FALSE(cancelled()); }

}  // namespace
}  // namespace farad::test
