// How workers end: together, alone, or without a word.

#include <farad/rref.h>
#include <farad/spawn.h>
#include <farad/worker.h>

#include <atomic>

#include "suites/rpc_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

int64_t add_one(int64_t x) { return x + 1; }

static Door* held;
int64_t hold(int64_t x) {
  held->pass();
  return x;
}

/// The message of PeerLost if closing throws it; empty if it does not.
std::string loss_at_close(Worker& worker) {
  try {
    worker.close();
  } catch (const PeerLost& error) {
    return error.what_without_backtrace();
  }
  return {};
}

// --- A peer that is gone ---

RPC_TEST(CallsToAWorkerThatEndsFailAndOnlyThose) {
  Door here;
  held = &here;
  Group group = start(3);
  auto doomed = group[0].rpc_async<hold>("worker1", 1);
  auto safe = group[0].rpc_async<hold>("worker2", 2);
  ASSERT_TRUE(here.has_come(2));

  Thread let_go([&] {
    EXPECT_THAT(message_of<PeerLost>([&] { doomed.wait(); }), AllOf(HasSubstr("hold"), HasSubstr("worker1")));
    here.open();  // The function that runs at worker1 holds its end up.
  });
  group.drop(1);
  let_go.join();

  EXPECT_EQ(safe.wait(), 2);
  EXPECT_EQ(group[0].rpc_sync<add_one>("worker2", 1), 2);
}

static Promise<int64_t>* promised;
Future<int64_t> return_promised() {
  auto future = promised->future();
  held->pass();
  return future;
}

RPC_TEST(FutureThatAFunctionReturnedMayOutliveItsWorker) {
  Door here;
  held = &here;
  here.open();
  // Of nobody's threads: whoever completes it runs what comes next.
  auto promise = std::make_unique<Promise<int64_t>>();
  promised = promise.get();
  Group group = start(2);
  auto reply = group[0].rpc_async<return_promised>("worker1");
  auto kept = group[0].remote<return_promised>("worker1");
  ASSERT_TRUE(here.has_come(2));
  ASSERT_EQ(group[0].rpc_sync<add_one>("worker1", 1), 2);

  group.drop(1);
  promise->set_value(7);

  EXPECT_THROW(reply.wait(), PeerLost);
  EXPECT_THROW(kept.to_here(), PeerLost);
}

RPC_TEST(CallToAWorkerThatHasEndedFailsAtOnce) {
  Group group = start(3);
  ASSERT_EQ(group[0].rpc_sync<add_one>("worker1", 1), 2);
  group.drop(1);

  EXPECT_THAT(message_of<PeerLost>([&] { group[0].rpc_sync<add_one>("worker1", 1); }),
              AllOf(HasSubstr("add_one"), HasSubstr("worker1")));
  EXPECT_THROW(group[2].rpc_sync<add_one>("worker1", 1), PeerLost) << "also over a connection that was never used";
  EXPECT_EQ(group[0].rpc_sync<add_one>("worker2", 1), 2);
}

int64_t fetch(const RRef<int64_t>& from) { return from.to_here(); }

RPC_TEST(RemoteToAWorkerThatHasEndedIsLostAtTheFirstUseOnEveryHolder) {
  Group group = start(3);
  group.drop(1);

  const auto ref = group[0].remote<add_one>("worker1", 1);

  for (int use = 0; use < 2; ++use) {
    EXPECT_THAT(message_of<PeerLost>([&] { ref.to_here(); }), HasSubstr("worker1"));
    EXPECT_THAT(message_of<RemoteError>([&] { group[0].rpc_sync<fetch>("worker2", ref); }), HasSubstr("PeerLost"));
  }
  EXPECT_EQ(ref.owner().name, "worker1");
}

RPC_TEST(FuturesOutliveTheirWorker) {
  Door here;
  held = &here;
  Group group = start(2);
  auto ready = group[0].rpc_async<add_one>("worker1", 1);
  auto open = group[0].rpc_async<hold>("worker1", 1);
  ASSERT_EQ(ready.wait(), 2);
  ASSERT_TRUE(here.has_come());

  group.drop(0);

  EXPECT_EQ(ready.wait(), 2);
  EXPECT_EQ(ready.then([](int64_t x) { return x + 1; }).wait(), 3);
  EXPECT_THROW(open.wait(), Closed);
  EXPECT_THROW(open.then([](int64_t) {}).wait(), Closed);
  open.cancel();
  here.open();
}

RPC_TEST(CallerOutlivesItsWorker) {
  Group group = start(2);
  const auto caller = group[0].with({});

  group.drop(0);

  EXPECT_THROW(caller.rpc_sync<add_one>("worker1", 1), Closed);
}

RPC_TEST(WorkersThatNobodyCalledEndQuickly) {
  for (int i = 0; i < 5; ++i) start(4);
}

// --- Close ---

RPC_TEST(CallsAfterCloseAreRefused) {
  Group group = start(2);
  group.each([](Worker& worker) { worker.close(); });

  EXPECT_THAT(message_of<Closed>([&] { group[0].rpc_sync<add_one>("worker1", 1); }),
              AllOf(HasSubstr("add_one"), HasSubstr("worker1")));
  EXPECT_THROW(group[0].rpc_async<add_one>("worker1", 1).wait(), Closed);
  EXPECT_THROW(group[0].rpc_sync<add_one>("worker0", 1), Closed);
  EXPECT_THROW(group[0].send<add_one>("worker1", 1), Closed);
  EXPECT_THROW(group[0].barrier(), Closed);
}

RPC_TEST(ClosingTwiceIsFine) {
  Group group = start(2);
  group.each([](Worker& worker) {
    worker.close();
    worker.close();
  });
  EXPECT_EQ(group[0].rank(), 0) << "what it is can still be asked";
  EXPECT_EQ(group[0].members().size(), 2u);
}

RPC_TEST(CloseWaitsForCallsThatRun) {
  Door here;
  held = &here;
  Group group = start(3);
  auto reply = group[0].rpc_async<hold>("worker1", 3);
  ASSERT_TRUE(here.has_come());
  std::atomic<int> closed{0};

  Thread closing([&] {
    group.each([&](Worker& worker) {
      worker.close();
      ++closed;
    });
  });
  EXPECT_FALSE(reply.wait_for(50ms));
  EXPECT_EQ(closed, 0);
  here.open();
  closing.join();

  EXPECT_EQ(reply.wait(), 3);
}

static std::atomic<int64_t> steps;

/// One-way calls that each make the next, so that for most of the time nobody waits for anything.
void wander(int64_t left) {
  ++steps;
  auto& worker = Worker::current();
  if (left > 0) worker.send<wander>((worker.rank() + 1 + left % (worker.size() - 1)) % worker.size(), left - 1);
}

RPC_TEST(CloseWaitsForCallsThatSpawnCalls) {
  for (int round = 0; round < 20; ++round) {
    steps = 0;
    Group group = start(3);
    for (int i = 0; i < 3; ++i) group[i].send<wander>((i + 1) % 3, 200);

    group.each([](Worker& worker) { worker.close(); });

    ASSERT_EQ(steps, 3 * 201) << round;
  }
}

RPC_TEST(CloseWaitsForContinuationsThatCall) {
  for (int round = 0; round < 50; ++round) {
    Group group = start(2);
    std::atomic<int64_t> sum{0};
    std::vector<Future<void>> last;
    for (int i = 0; i < 10; ++i) {
      last.push_back(group[0]
                         .rpc_async<add_one>("worker1", i)
                         .then([](int64_t x) { return Worker::current().rpc_async<add_one>("worker1", x); })
                         .then([&](int64_t x) { sum += x; }));
    }

    group.each([](Worker& worker) { worker.close(); });

    ASSERT_EQ(sum, 45 + 20) << round;
    for (auto& one : last) EXPECT_NO_THROW(one.wait());
  }
}

RPC_TEST(CloseWaitsForUnevenWork) {
  static std::atomic<int64_t> ran;
  ran = 0;
  Group group = start(4);
  group.each([](Worker& worker) {
    if (worker.rank() == 3) {
      for (int i = 0; i < 500; ++i) {
        worker.send<[] {
          Worker::current().rpc_sync<add_one>(0, 1);
          ++ran;
        }>(i % 3);
      }
    }
    worker.close();
  });

  EXPECT_EQ(ran, 500);
}

RPC_TEST(CloseInARemoteFunctionThrows) {
  Group group = start(2);

  EXPECT_THAT(message_of<RemoteError>([&] { group[0].rpc_sync<[] { Worker::current().close(); }>("worker1"); }),
              HasSubstr("close()"));
  EXPECT_THAT(message_of<RemoteError>([&] { group[0].rpc_sync<[] { Worker::current().leave(); }>("worker1"); }),
              HasSubstr("leave()"));
  EXPECT_EQ(group[0].rpc_sync<add_one>("worker1", 1), 2);
}

RPC_TEST(CloseInAContinuationThrows) {
  Group group = start(2);

  for (auto end : {&Worker::close, &Worker::leave}) {
    auto ended = group[0].rpc_async<add_one>("worker1", 1).then([end](int64_t) { (Worker::current().*end)(); });
    EXPECT_THROW(ended.wait(), c10::Error);
  }
  EXPECT_EQ(group[0].rpc_sync<add_one>("worker1", 1), 2);
}

RPC_TEST(CloseNamesTheLostAndDoesNotHang) {
  for (int lost = 0; lost < 3; ++lost) {
    Group group = start(3);
    group.drop(lost);

    group.each([&](Worker& worker) {
      EXPECT_THAT(loss_at_close(worker), HasSubstr("worker" + std::to_string(lost))) << worker.rank();
      EXPECT_THROW(worker.rpc_sync<add_one>(worker.rank(), 1), Closed) << "closed all the same";
      EXPECT_NO_THROW(worker.close());
    });
  }
}

RPC_TEST(WorkerLostWhileOthersCloseIsNamed) {
  for (int lost = 0; lost < 3; ++lost) {
    Group group = start(3);
    Worker leaver = group.take(lost);
    Thread closing([&] {
      group.each([&](Worker& worker) {
        EXPECT_THAT(loss_at_close(worker), HasSubstr("worker" + std::to_string(lost))) << worker.rank();
      });
    });
    {
      Worker gone = std::move(leaver);
    }
    closing.join();
  }
}

// --- Barrier ---

RPC_TEST(BarrierReturnsWhenAllHaveCome) {
  Group group = start(4);
  std::atomic<int> came{0};

  group.each([&](Worker& worker) {
    for (int round = 1; round <= 50; ++round) {
      ++came;
      worker.barrier();
      EXPECT_GE(came, 4 * round);
    }
  });
}

RPC_TEST(BarrierNamesTheLost) {
  for (int lost = 0; lost < 3; ++lost) {
    Group group = start(3);
    std::atomic<int> there{0};
    Worker gone = group.take(lost);
    Thread meeting([&] {
      group.each([&](Worker& worker) {
        ++there;
        EXPECT_THAT(message_of<PeerLost>([&] { worker.barrier(); }),
                    AllOf(HasSubstr("barrier"), HasSubstr("worker" + std::to_string(lost))));
      });
    });
    EXPECT_TRUE(eventually([&] { return there == 2; }));
    {
      Worker ends = std::move(gone);
    }
    meeting.join();
  }
}

// --- spawn_threads ---

TEST_P(RpcSuite, SpawnedThreadsAreMembersOfOneGroup) {
  if (GetParam() == "sim") GTEST_SKIP() << "spawn_threads starts real ones";
  std::atomic<int> sum{0};

  spawn_threads(3,
                [&](Worker& worker) {
                  EXPECT_EQ(Worker::current().rank(), worker.rank());
                  sum += static_cast<int>(worker.rpc_sync<add_one>((worker.rank() + 1) % 3, worker.rank()));
                },
                {.transport = GetParam()});

  EXPECT_EQ(sum, 6);
}

TEST_P(RpcSuite, FirstToFailAmongSpawnedThreadsIsHeardOf) {
  if (GetParam() == "sim") GTEST_SKIP() << "spawn_threads starts real ones";
  for (int round = 0; round < 10; ++round) {
    const auto program = [&](Worker& worker) {
      if (worker.rank() == round % 3) throw std::out_of_range("it was I");
      worker.barrier();
    };
    EXPECT_THROW(spawn_threads(3, program, {.transport = GetParam()}), std::out_of_range) << round;
  }
}

}  // namespace
}  // namespace farad::test
