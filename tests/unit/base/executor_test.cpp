#include "base/executor.h"

#include <farad/error.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <system_error>
#include <thread>

namespace farad::base {
namespace {

TEST(Executor, RunsEverythingThatWasPosted) {
  std::atomic<int> ran{0};
  {
    Executor executor(Runtime::real(), "test", 3);
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(executor.post([&] { ++ran; }));
  }
  EXPECT_EQ(ran, 1000);
}

TEST(Executor, TakesNothingAfterClose) {
  Executor executor(Runtime::real(), "test", 1);
  executor.close();
  EXPECT_FALSE(executor.post([] {}));
}

TEST(Executor, LeavesWhatItDoesNotTake) {
  Executor executor(Runtime::real(), "test", 1);
  executor.close();
  bool ran = false;
  std::function<void()> task = [&] { ran = true; };
  ASSERT_FALSE(executor.post(std::move(task)));
  ASSERT_TRUE(task);
  task();
  EXPECT_TRUE(ran);
}

TEST(Executor, StartsNoMoreThreadsThanWanted) {
  Executor executor(Runtime::real(), "test", 2);
  std::latch started(2), release(1);
  for (int i = 0; i < 10; ++i) {
    executor.post([&, i] {
      if (i < 2) started.count_down();
      release.wait();
    });
  }
  started.wait();
  EXPECT_EQ(executor.threads(), 2);
  release.count_down();
  executor.close();
}

// The reason for being of Waiting: with one thread, a chain of tasks that wait for each other would stall.
TEST(Executor, GrowsWhileItsTasksWaitForTasks) {
  constexpr int depth = 100;
  Executor executor(Runtime::real(), "test", 1);
  std::vector<std::unique_ptr<std::latch>> done;
  for (int i = 0; i <= depth; ++i) done.push_back(std::make_unique<std::latch>(1));
  std::function<void(int)> nest = [&](int level) {
    if (level < depth) {
      executor.post([&, level] { nest(level + 1); });
      Executor::Waiting waiting;
      done[level + 1]->wait();
    }
    done[level]->count_down();
  };
  executor.post([&] { nest(0); });
  done[0]->wait();
  executor.close();
}

TEST(Executor, ShrinksAgainWhenNobodyWaits) {
  Executor executor(Runtime::real(), "test", 1);
  std::latch in(1), out(1);
  executor.post([&] {
    Executor::Waiting waiting;
    in.count_down();
    out.wait();
  });
  in.wait();
  std::latch second(1);
  executor.post([&] { second.count_down(); });
  second.wait();
  EXPECT_EQ(executor.threads(), 2);
  out.count_down();
  // One of the two ends once it finds that it is one too many; nobody can say which, or when, but it happens.
  const auto end = Clock::now() + std::chrono::seconds(60);
  while (executor.threads() > 1 && Clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(executor.threads(), 1);
  executor.close();
  EXPECT_EQ(executor.threads(), 0);
}

/// A system that has so many threads to spare.
class FewThreads final : public Runtime {
 public:
  explicit FewThreads(int count) : left_(count) {}
  TimePoint now() const override { return real().now(); }
  std::unique_ptr<Parker> make_parker() override { return real().make_parker(); }
  std::unique_ptr<Thread> start(std::string name, std::function<void()> run) override {
    if (left_-- <= 0) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    return real().start(std::move(name), std::move(run));
  }

 private:
  std::atomic<int> left_;
};

TEST(Executor, RefusesATaskThatNoThreadWouldTake) {
  FewThreads runtime(1);
  Executor executor(runtime, "test", 4);
  std::latch waits(1), go_on(1), done(1);
  EXPECT_TRUE(executor.post([&] {
    {
      const Executor::Waiting waiting;
      waits.count_down();
      go_on.wait();
    }
    done.count_down();
  }));
  waits.wait();
  EXPECT_FALSE(executor.post([] {})) << "who waits may wait for just this one";

  go_on.count_down();
  done.wait();
  std::latch ran(1);
  EXPECT_TRUE(executor.post([&] { ran.count_down(); })) << "the one thread that there is takes it";
  ran.wait();
}

TEST(Executor, RefusesAWaitThatWouldStrandTasks) {
  FewThreads runtime(1);
  Executor executor(runtime, "test", 4);
  std::latch queued(1), ran(1);
  EXPECT_TRUE(executor.post([&] {
    queued.wait();
    for (int i = 0; i < 2; ++i) EXPECT_THROW(Executor::Waiting(), Error) << i;
  }));
  EXPECT_TRUE(executor.post([&] { ran.count_down(); }));
  queued.count_down();
  ran.wait();
}

TEST(ExecutorConcurrency, ManyPostersAndClose) {
  std::atomic<int> ran{0}, taken{0};
  Executor executor(Runtime::real(), "test", 4);
  std::vector<std::thread> posters;
  for (int i = 0; i < 4; ++i) {
    posters.emplace_back([&] {
      for (int k = 0; k < 500; ++k) taken += executor.post([&] { ++ran; });
    });
  }
  executor.close();
  for (auto& poster : posters) poster.join();
  EXPECT_EQ(ran, taken) << "every task that was taken ran, and no other";
}

TEST(Parker, AWakeBeforeTheWaitIsKeptOnce) {
  auto parker = Runtime::real().make_parker();
  parker->unpark();
  parker->unpark();
  EXPECT_TRUE(parker->park(never));
  EXPECT_FALSE(parker->park(Clock::now()));
}

}  // namespace
}  // namespace farad::base
