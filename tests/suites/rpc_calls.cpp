// Who can be called, from where, and how deep.

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <farad/rref.h>
#include <farad/worker.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "suites/rpc_suite.h"
#include "suites/rpc_twins.h"

namespace arithmetic {
int64_t doubled(int64_t x) { return 2 * x; }
}  // namespace arithmetic
FARAD_REMOTE(arithmetic::doubled)

namespace farad::test {
namespace {

using namespace std::chrono_literals;

int64_t add(int64_t a, int64_t b) { return a + b; }
std::string greet(std::string name) { return "hello " + name; }
int rank_here() { return Worker::current().rank(); }

struct Calculator {
  static double halve(double x) { return x / 2; }
};

std::string twin() { return "this one"; }
struct Speaker {
  static std::string speak(Worker& from, const Peer& to) {
    return from.rpc_sync<[] { return std::string("this one"); }>(to);
  }
};

std::string join_all(std::string value, const std::string& constant, std::string&& rvalue) {
  std::string moved = std::move(rvalue);
  return value + constant + moved;
}

RPC_TEST(FreeFunctionsStaticMembersAndLambdasCanBeCalled) {
  Group group = start(2);

  EXPECT_EQ(group[0].rpc_sync<add>("worker1", 2, 3), 5);
  EXPECT_EQ(group[0].rpc_sync<&add>("worker1", 2, 3), 5);
  EXPECT_EQ(group[0].rpc_sync<Calculator::halve>("worker1", 3), 1.5);
  EXPECT_EQ(group[0].rpc_sync<[](int64_t x) { return x * x; }>("worker1", 12), 144);
  EXPECT_EQ(group[0].rpc_sync<[](int64_t x) noexcept { return -x; }>("worker1", 12), -12);
}

RPC_TEST(OperatorsAndFunctionsMadeKnownCanBeCalledByName) {
  Group group = start(2);
  const auto x = at::ones({2});

  EXPECT_TRUE(at::equal(group[0].rpc_sync("worker1", "aten::add", {x, x}).toTensor(), x + x));
  EXPECT_TRUE(at::equal(group[0].remote("worker1", "aten::add", {x, 1}).to_here(), x + 1));
  EXPECT_EQ(group[0].rpc_sync("worker1", "arithmetic::doubled", {21}).toInt(), 42);
  EXPECT_EQ(group[0].rpc_async("worker0", "arithmetic::doubled", {4}).wait().toInt(), 8);
  EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync("worker1", "arithmetic::halved", {4}); }),
              testing::AllOf(testing::HasSubstr("arithmetic::halved"), testing::HasSubstr("worker1")));
}

RPC_TEST(FunctionsRunWhereTheyAreCalled) {
  Group group = start(3);

  EXPECT_EQ(group[0].rpc_sync<rank_here>("worker2"), 2);
  EXPECT_EQ(group[0].rpc_sync<rank_here>(1), 1);
  EXPECT_EQ(group[2].rpc_sync<rank_here>(group[2].members()[0]), 0);
  EXPECT_EQ(group[1].rpc_sync<rank_here>(group[1].find("worker2")), 2);
  EXPECT_EQ(group[1].rpc_sync<rank_here>(group[1].self()), 1);
}

RPC_TEST(RanksMayBeIntegersOfAnyKind) {
  Group group = start(2);
  const size_t size = 1;

  EXPECT_EQ(group[0].rpc_sync<rank_here>(size), 1);
  EXPECT_EQ(group[0].rpc_sync<rank_here>(int64_t{1}), 1);
  EXPECT_EQ(group[1].rpc_sync<rank_here>(0u), 0);
  EXPECT_EQ(group[1].rpc_sync<rank_here>(0L), 0);
}

RPC_TEST(UnknownPeersAreNamedBesideWhatWasToBeCalled) {
  Group group = start(2);
  const auto call_of = [](const char* peer) {
    return testing::AllOf(testing::StartsWith("[rpc] call of \""), testing::HasSubstr("rank_here"),
                          testing::HasSubstr(peer));
  };

  EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync<rank_here>("worker7"); }),
              testing::AllOf(call_of("\"worker7\""), testing::HasSubstr("worker0, worker1")));
  EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync<rank_here>(2); }), call_of("rank 2 "));
  EXPECT_THAT(message_of<Error>([&] { group[0].rpc_async<rank_here>(-1); }), call_of("rank -1 "));
  EXPECT_THAT(message_of<Error>([&] { group[0].remote<rank_here>((uint64_t{1} << 32) + 1); }),
              call_of("rank 4294967297 "));
  EXPECT_THAT(message_of<Error>([&] { group[0].send<rank_here>(int64_t{-1} << 32); }), call_of("rank -4294967296 "));
  EXPECT_THAT(message_of<Error>([&] { group[0].rpc_sync("worker7", "aten::add", {}); }),
              testing::HasSubstr("\"aten::add\" to worker7"));
  EXPECT_THAT(message_of<Error>([&] { group[0].find("worker7"); }),
              testing::AllOf(testing::HasSubstr("\"worker7\""), testing::HasSubstr("worker0, worker1")));
}

RPC_TEST(FunctionsOfTheSamePrintedNameStayDistinct) {
  Group group = start(2);

  EXPECT_EQ(group[0].rpc_sync<twin>("worker1"), "this one");
  EXPECT_EQ(call_other_twin(group[0], "worker1"), "the other");
  EXPECT_EQ(Speaker::speak(group[0], "worker1"), "this one");
  EXPECT_EQ(call_other_twin_lambda(group[0], "worker1"), "the other");
  EXPECT_EQ(group[0].rpc_sync<[](int64_t) { return 1; }>(1, 0), 1);
  EXPECT_EQ(group[0].rpc_sync<[](int64_t) { return 2; }>(1, 0), 2);
}

RPC_TEST(ArgumentsBecomeWhatTheFunctionTakes) {
  Group group = start(2);
  const char* name = "you";
  const std::string constant = "you";

  EXPECT_EQ(group[0].rpc_sync<greet>("worker1", "you"), "hello you");
  EXPECT_EQ(group[0].rpc_sync<greet>("worker1", name), "hello you");
  EXPECT_EQ(group[0].rpc_sync<greet>("worker1", constant), "hello you");
  EXPECT_EQ(group[0].rpc_sync<add>("worker1", 12, short{1}), 13);
  EXPECT_EQ(group[0].rpc_sync<[](double x) { return x; }>("worker1", 12), 12.0);
}

RPC_TEST(ParametersAreValuesConstantReferencesOrRvalues) {
  Group group = start(2);
  std::string mine = "a";

  EXPECT_EQ(group[0].rpc_sync<join_all>("worker1", mine, mine, mine), "aaa");
  EXPECT_EQ(mine, "a") << "an argument is a copy unless it was moved";
}

RPC_TEST(NothingIsAlsoAResult) {
  static std::atomic<int> runs;
  runs = 0;
  Group group = start(2);

  group[0].rpc_sync<[] { ++runs; }>("worker1");
  EXPECT_EQ(runs, 1);
  group[0].rpc_async<[] { ++runs; }>("worker1").wait();
  EXPECT_EQ(runs, 2);
}

RPC_TEST(AsynchronousCallsOverlap) {
  static Door* door;
  Door here;
  door = &here;
  Group group = start(2, {.threads = 1});

  std::vector<Future<int64_t>> replies;
  for (int64_t i = 0; i < 8; ++i) {
    replies.push_back(group[0].rpc_async<[](int64_t x) {
      door->pass();
      return x;
    }>("worker1", i));
  }
  EXPECT_TRUE(here.has_come(8)) << "all of them run although the callee has one thread";
  EXPECT_FALSE(replies[0].ready());
  here.open();

  EXPECT_EQ(when_all(replies).wait(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

RPC_TEST(FutureOfACallCanBeWaitedForAsOftenAsLiked) {
  Group group = start(2);
  auto reply = group[0].rpc_async<greet>("worker1", "you");
  auto copy = reply;

  EXPECT_EQ(reply.wait(), "hello you");
  EXPECT_EQ(reply.wait(), "hello you");
  EXPECT_EQ(copy.wait(), "hello you");
  EXPECT_TRUE(reply.ready());
  EXPECT_TRUE(reply.wait_for(0s));
}

RPC_TEST(ContinuationsMayCallAndFindTheirWorker) {
  Group group = start(3);

  const auto reply = group[0].rpc_async<rank_here>("worker1").then([](int first) {
    auto& worker = Worker::current();
    return worker.rpc_async<add>("worker2", first, worker.rank() + 10);
  });

  EXPECT_EQ(reply.wait(), 11);
}

static Promise<int64_t>* told;
static Door* registered;
Future<int64_t> continue_when_told() {
  auto next = told->future().then([](int64_t x) {
    auto& worker = Worker::current();
    return worker.rpc_async<add>("worker0", x, worker.rank() + 10);
  });
  registered->pass();
  return next;
}

RPC_TEST(ContinuationsOfAPromiseFindTheWorkerThatTheyWereMadeFor) {
  Promise<int64_t> promise;
  Door door;
  door.open();
  told = &promise;
  registered = &door;
  Group group = start(3);
  const auto reply = group[0].rpc_async<continue_when_told>("worker2");
  ASSERT_TRUE(door.has_come());

  promise.set_value(1);  // By a thread that runs for nobody.

  EXPECT_EQ(reply.wait(), 13);
}

RPC_TEST(WorkersCallThemselves) {
  Group group = start(2, {.threads = 1});

  EXPECT_EQ(group[1].rpc_sync<rank_here>("worker1"), 1);
  EXPECT_EQ(group[1].rpc_async<add>(1, 2, 3).wait(), 5);
}

int64_t ping_pong(int64_t depth) {
  auto& worker = Worker::current();
  return depth == 0 ? 0 : 1 + worker.rpc_sync<ping_pong>((worker.rank() + 1) % worker.size(), depth - 1);
}

RPC_TEST(CallsNestAThousandDeepWithOneThreadEach) {
  Group group = start(2, {.threads = 1});

  EXPECT_EQ(group[0].rpc_sync<ping_pong>("worker1", 1000), 1000);
}

int64_t call_self(int64_t depth) {
  auto& worker = Worker::current();
  return depth == 0 ? 0 : 1 + worker.rpc_sync<call_self>(worker.rank(), depth - 1);
}

RPC_TEST(SelfCallsNestWithOneThread) {
  Group group = start(1, {.threads = 1});

  EXPECT_EQ(group[0].rpc_sync<call_self>(0, 100), 100);
}

RPC_TEST(AllToAllFromThirtyTwoWorkersAtOnce) {
  Group group = start(32, {.threads = 1});
  std::atomic<int> right{0};

  group.each([&](Worker& worker) {
    std::vector<Future<int64_t>> replies;
    for (int to = 0; to < worker.size(); ++to) replies.push_back(worker.rpc_async<ping_pong>(to, 2));
    for (auto& reply : replies) right += reply.wait() == 2;
  });

  EXPECT_EQ(right, 32 * 32);
}

// --- Functions whose result comes later ---

static Door* later;

Future<int64_t> plus_one_later(int64_t x) {
  return later->opened().then([x] { return x + 1; });
}

RPC_TEST(NoThreadWaitsForAFutureThatAFunctionReturns) {
  Door here;
  later = &here;
  Group group = start(2, {.threads = 1});

  std::vector<Future<int64_t>> replies;
  for (int64_t i = 0; i < 1000; ++i) replies.push_back(group[0].rpc_async<plus_one_later>("worker1", i));
  EXPECT_EQ(group[0].rpc_sync<add>("worker1", 1, 1), 2) << "the only thread is free";
  EXPECT_FALSE(replies[0].ready());
  here.open();

  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(replies[i].wait(), i + 1);
}

Future<int64_t> forward_add(int64_t a, int64_t b) { return Worker::current().rpc_async<add>("worker2", a, b); }

RPC_TEST(FutureOfAnotherCallCanBeReturned) {
  Group group = start(3, {.threads = 1});

  EXPECT_EQ(group[0].rpc_sync<forward_add>("worker1", 20, 22), 42);
  EXPECT_EQ(group[0].rpc_async<[] { return Worker::current().rpc_async<rank_here>(2); }>(1).wait(), 2);
}

RPC_TEST(FutureOfNothingCanBeReturned) {
  Door here;
  later = &here;
  Group group = start(2, {.threads = 1});

  auto reply = group[0].rpc_async<[] { return later->opened(); }>("worker1");
  EXPECT_EQ(group[0].rpc_sync<rank_here>("worker1"), 1);
  EXPECT_FALSE(reply.ready());
  here.open();

  reply.wait();
}

// --- One way ---

RPC_TEST(SendRunsTheFunctionAndHearsNothingOfIt) {
  static std::atomic<int64_t> sum;
  sum = 0;
  Group group = start(2);

  for (int64_t i = 1; i <= 100; ++i) group[0].send<[](int64_t x) { sum += x; }>("worker1", i);
  group[0].send<[] { throw std::runtime_error("nobody hears this"); }>("worker1");

  EXPECT_TRUE(eventually([] { return sum == 5050; }));
  EXPECT_EQ(group[0].rpc_sync<rank_here>("worker1"), 1);
}

RPC_TEST(TensorsOfASendMayBeChangedAtOnce) {
  static std::atomic<double> sum;
  sum = 0;
  Group group = start(2);

  // Nobody could say when it has gone. More than is written at once:
  const auto large = at::ones({4 << 20});
  group[0].send<[](const at::Tensor& x) { sum = x.sum().item<double>(); }>("worker1", large);
  large.add_(1);

  EXPECT_TRUE(eventually([] { return sum != 0; }));
  EXPECT_EQ(sum, 4 << 20);
}

// --- Whose thread is it ---

RPC_TEST(CurrentWorkerIsThatOfTheFunctionThatRuns) {
  EXPECT_THROW(Worker::current(), Error);
  Group group = start(2);

  EXPECT_THROW(Worker::current(), Error);
  EXPECT_EQ(group[0].rpc_sync<[] { return Worker::current().self().name; }>("worker1"), "worker1");
  EXPECT_EQ(group[0].rpc_async<add>("worker1", 1, 1).then([](int64_t) { return Worker::current().rank(); }).wait(), 0);
  EXPECT_THROW(Worker::current(), Error);
}

RPC_TEST(MovedWorkerKeepsItsFuturesAndItsPeers) {
  static Door* held;
  Door here;
  held = &here;
  Group group = start(2);
  auto reply = group[0].rpc_async<[](int64_t x) { return held->pass(), x; }>("worker1", 4);
  const auto caller = group[0].with({});

  Worker moved = group.take(0);
  Worker again = std::move(moved);
  here.open();

  EXPECT_EQ(reply.wait(), 4);
  EXPECT_EQ(again.rpc_sync<add>("worker1", 1, 2), 3);
  EXPECT_EQ(caller.rpc_sync<add>("worker1", 1, 2), 3);
  EXPECT_EQ(group[1].rpc_sync<rank_here>("worker0"), 0);
  Thread other([&] { group.each([](Worker& worker) { worker.close(); }); });
  again.close();
  other.join();
}

}  // namespace
}  // namespace farad::test
