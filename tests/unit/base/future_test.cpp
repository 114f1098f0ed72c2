#include <farad/future.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/executor.h"
#include "base/runtime.h"

namespace farad {
namespace {

using namespace std::chrono_literals;

std::exception_ptr some_error() { return std::make_exception_ptr(Timeout("[test] too late")); }

TEST(Future, GivesItsValueAsOftenAsAsked) {
  Promise<std::string> promise;
  auto future = promise.future();
  EXPECT_FALSE(future.ready());
  promise.set_value("hello");
  EXPECT_TRUE(future.ready());
  EXPECT_EQ(future.wait(), "hello");
  EXPECT_EQ(future.wait(), "hello");
}

TEST(Future, ThrowsItsErrorAsOftenAsAsked) {
  Promise<int> promise;
  promise.set_exception(some_error());
  EXPECT_THROW(promise.future().wait(), Timeout);
  EXPECT_THROW(promise.future().wait(), Timeout);
}

TEST(Future, OnlyTheFirstResultCounts) {
  Promise<int> promise;
  promise.set_value(1);
  promise.set_value(2);
  promise.set_exception(some_error());
  EXPECT_EQ(promise.future().wait(), 1);
}

TEST(Future, WaitForReturnsFalseUntilThereIsAValue) {
  Promise<int> promise;
  EXPECT_FALSE(promise.future().wait_for(1ms));
  promise.set_value(1);
  EXPECT_TRUE(promise.future().wait_for(0ms));
}

TEST(Future, WhoDoesNotWaitAnyMoreIsForgotten) {
  Promise<int> promise;
  auto token = std::make_shared<int>();
  const std::weak_ptr<int> kept = token;
  bool told = false, other_told = false;
  const auto core = promise.future().core();
  const auto wake = core->notify([&told, token = std::move(token)] { told = true; });
  core->notify([&] { other_told = true; });
  core->forget(wake);
  EXPECT_TRUE(kept.expired());
  promise.set_value(1);
  EXPECT_FALSE(told);
  EXPECT_TRUE(other_told);
  core->forget(wake);
}

// What a value needs before a thread may use it is needed by whoever gets it by another future, too.
TEST(Future, ReaderGoesAlongWithTheValue) {
  Promise<int> first, second;
  int readings = 0;
  for (const auto& promise : {first, second}) promise.future().core()->set_reader([&] { ++readings; });
  const auto both = when_all(std::vector{first.future(), second.future()});
  Promise<int> follower;
  follower.follow(second.future());
  first.set_value(1);
  second.set_value(2);

  readings = 0;
  EXPECT_EQ(follower.future().wait(), 2);
  EXPECT_EQ(readings, 1);
  EXPECT_EQ(both.wait().size(), 2u);
  EXPECT_EQ(readings, 3);
}

TEST(Future, WakesAThreadThatWaits) {
  Promise<int> promise;
  int got = 0;
  std::thread waiter([&] { got = promise.future().wait(); });
  promise.set_value(7);
  waiter.join();
  EXPECT_EQ(got, 7);
}

TEST(Future, ThenGetsTheValueNowOrLater) {
  Promise<int> promise;
  auto before = promise.future().then([](int x) { return x + 1; });
  promise.set_value(1);
  auto after = promise.future().then([](int x) { return std::to_string(x); });
  EXPECT_EQ(before.wait(), 2);
  EXPECT_EQ(after.wait(), "1");
}

TEST(Future, ThenOfVoidBothWays) {
  Promise<void> promise;
  bool ran = false;
  auto next = promise.future().then([&] { ran = true; });
  promise.set_value();
  next.wait();
  EXPECT_TRUE(ran);
}

TEST(Future, ErrorsPassThenBy) {
  Promise<int> promise;
  bool ran = false;
  auto next = promise.future().then([&](int) { ran = true; });
  promise.set_exception(some_error());
  EXPECT_THROW(next.wait(), Timeout);
  EXPECT_FALSE(ran);
}

TEST(Future, AnExceptionInThenIsTheNextFuturesError) {
  Promise<int> promise;
  auto next = promise.future().then([](int) -> int { throw PeerLost("[test] gone"); });
  promise.set_value(1);
  EXPECT_THROW(next.wait(), PeerLost);
}

TEST(Future, ThenThatReturnsAFutureGivesWhatItBecomes) {
  Promise<int> first, second;
  auto next = first.future().then([&](int) { return second.future(); });
  static_assert(std::is_same_v<decltype(next), Future<int>>);
  first.set_value(1);
  EXPECT_FALSE(next.ready());
  second.set_value(2);
  EXPECT_EQ(next.wait(), 2);
}

TEST(Future, ThenTakesWhateverCanBeCalledWithTheValue) {
  Promise<std::string> promise;
  const auto future = promise.future();
  promise.set_value("abc");
  EXPECT_EQ(future.then([kept = std::make_unique<int>(4)](const std::string& x) { return x.size() + *kept; }).wait(),
            7u);
  EXPECT_EQ(future.then([](std::string&& x) { return std::move(x) + "!"; }).wait(), "abc!");
  EXPECT_EQ(future.then(&std::string::size).wait(), 3u);
  EXPECT_EQ(future.then([](auto x) { return x; }).wait(), "abc");
  EXPECT_EQ(future.wait(), "abc") << "what one continuation was given is not gone";
}

TEST(Future, SpansMayBeLongerThanAnyClock) {
  Promise<int> promise;
  EXPECT_FALSE(promise.future().wait_for(std::chrono::milliseconds::min()));
  std::thread later([&] { promise.set_value(1); });
  EXPECT_TRUE(promise.future().wait_for(std::chrono::milliseconds::max()));
  EXPECT_TRUE(promise.future().wait_for(std::chrono::hours::max()));
  later.join();
}

TEST(Future, CancelEndsItWithCancelledAndTellsTheMaker) {
  Promise<int> promise;
  bool told = false;
  promise.on_cancel([&] { told = true; });
  promise.future().cancel();
  EXPECT_TRUE(told);
  EXPECT_THROW(promise.future().wait(), Cancelled);
  promise.set_value(1);
  EXPECT_THROW(promise.future().wait(), Cancelled);
}

TEST(Future, CancelAfterTheValueChangesNothing) {
  Promise<int> promise;
  bool told = false;
  promise.on_cancel([&] { told = true; });
  promise.set_value(1);
  promise.future().cancel();
  EXPECT_FALSE(told);
  EXPECT_EQ(promise.future().wait(), 1);
}

TEST(Future, CancellingWhatComesAfterThenReachesTheOrigin) {
  Promise<int> promise;
  bool told = false;
  promise.on_cancel([&] { told = true; });
  promise.future().then([](int) {}).cancel();
  EXPECT_TRUE(told);
}

TEST(Future, CancellingWhatComesAfterThenReachesTheFutureThatItReturned) {
  Promise<int> first, second;
  bool told = false;
  second.on_cancel([&] { told = true; });
  auto next = first.future().then([&](int) { return second.future(); });
  first.set_value(1);
  next.cancel();
  EXPECT_TRUE(told);
  EXPECT_THROW(second.future().wait(), Cancelled);
}

TEST(Future, WhatIsToStopOneThatIsCancelledAlreadyDoesSoAtOnce) {
  Promise<int> follower, followed;
  follower.future().cancel();
  bool told = false;
  followed.on_cancel([&] { told = true; });
  follower.follow(followed.future());
  EXPECT_TRUE(told);

  Promise<int> ready, other;
  ready.set_value(1);
  ready.follow(other.future());
  EXPECT_FALSE(other.future().ready()) << "nobody has cancelled anything";
}

TEST(Future, APromiseThatDidNotAskIsLeftToTheOthersThatWaitForIt) {
  Promise<int> promise;
  auto one = promise.future().then([](int x) { return x; }), other = promise.future().then([](int x) { return x + 1; });
  one.cancel();
  EXPECT_THROW(one.wait(), Cancelled);
  promise.set_value(1);
  EXPECT_EQ(other.wait(), 2);

  Promise<int> late;
  late.future().then([](int) {}).cancel();
  bool told = false;
  late.on_cancel([&] { told = true; });
  EXPECT_TRUE(told) << "it asks now, and somebody has given it up";
}

TEST(Future, ADroppedPromiseIsAnErrorNotAHang) {
  Future<int> future;
  {
    Promise<int> promise;
    future = promise.future();
  }
  EXPECT_THROW(future.wait(), Cancelled);
}

TEST(Future, ADefaultConstructedOneSaysSo) {
  Future<int> future;
  EXPECT_FALSE(future.valid());
  EXPECT_THROW(future.wait(), Error);
}

TEST(WhenAll, KeepsTheOrder) {
  std::vector<Promise<int>> promises(3);
  std::vector<Future<int>> futures;
  for (auto& promise : promises) futures.push_back(promise.future());
  auto all = when_all(futures);
  for (int i : {2, 0, 1}) {
    EXPECT_FALSE(all.ready());
    promises[i].set_value(i * 10);
  }
  EXPECT_EQ(all.wait(), (std::vector<int>{0, 10, 20}));
}

TEST(WhenAll, FailsWithTheFirstErrorWithoutWaitingForTheRest) {
  std::vector<Promise<void>> promises(2);
  auto all = when_all(std::vector<Future<void>>{promises[0].future(), promises[1].future()});
  promises[1].set_exception(some_error());
  EXPECT_THROW(all.wait(), Timeout);
}

TEST(WhenAll, OfVoidIsVoid) {
  Promise<void> first, second;
  Future<void> both = when_all({first.future(), second.future()});
  auto next = both.then([] { return 5; });
  first.set_value();
  EXPECT_FALSE(both.ready());
  second.set_value();
  EXPECT_EQ(next.wait(), 5);
  when_all(std::vector<Future<void>>{}).wait();
}

TEST(WhenAll, CancellingItCancelsThoseThatAreNotReady) {
  std::vector<Promise<int>> promises(3);
  std::vector<Future<int>> futures;
  std::vector<bool> told(3);
  for (size_t i = 0; i < 3; ++i) {
    promises[i].on_cancel([&told, i] { told[i] = true; });
    futures.push_back(promises[i].future());
  }
  promises[1].set_value(1);
  when_all(futures).cancel();
  EXPECT_EQ(told, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(futures[1].wait(), 1);
}

TEST(WhenAll, OfNothingIsReady) { EXPECT_TRUE(when_all(std::vector<Future<int>>{}).ready()); }

/// It has no thread for anything.
class FullHost final : public detail::FutureHost {
 public:
  void wait(detail::FutureCore&, std::chrono::steady_clock::time_point) override {}
  void run(std::function<void()> continuation) override {
    const detail::Refusal refusal(std::make_exception_ptr(Error("[test] no thread")));
    continuation();
  }
  std::chrono::steady_clock::time_point now() const override { return {}; }
};

TEST(Refusal, ContinuationsThatNobodyCanRunFailAndDoNotBegin) {
  const auto host = std::make_shared<FullHost>();
  Promise<int> promise(host), of_nobody;
  bool ran = false;
  const auto next = promise.future().then([&](int) { ran = true; }).then([&] { ran = true; });
  promise.set_value(1);
  EXPECT_THROW(next.wait(), Error);
  EXPECT_FALSE(ran);
  EXPECT_EQ(promise.future().wait(), 1);

  of_nobody.future().then([&](int) { ran = true; });
  of_nobody.set_value(1);
  EXPECT_TRUE(ran) << "elsewhere nothing is refused";
}

// A race between many who complete, cancel and wait: each waiter gets an end, and all of them the same one.
TEST(FutureConcurrency, OneResultForEverybody) {
  for (int round = 0; round < 200; ++round) {
    Promise<int> promise;
    std::atomic<int> sum{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([&, i] { promise.set_value(i); });
    for (int i = 0; i < 3; ++i) threads.emplace_back([&] { sum += promise.future().wait(); });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(sum, 3 * promise.future().wait());
  }
}

TEST(Errors, CanBeCaughtAsTheirKindAsErrorAndAsTorchs) {
  EXPECT_THROW(throw PeerLost("x"), Error);
  EXPECT_THROW(throw Closed("x"), c10::Error);
  try {
    throw Aborted("[autograd] pass 3 of context 9: node MulBackward0 on worker1 threw");
  } catch (const c10::Error& error) {
    EXPECT_STREQ(error.what_without_backtrace(), "[autograd] pass 3 of context 9: node MulBackward0 on worker1 threw");
  }
}

}  // namespace
}  // namespace farad
