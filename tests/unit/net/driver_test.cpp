#include "net/driver.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "unit/net/station.h"

namespace farad::net {
namespace {

using namespace std::chrono_literals;

TEST(Driver, AThreadThatWaitsTakesInWhatItWaitsFor) {
  Station station;  // No resident: whoever waits must drive.
  auto waiter = station.driver.make_waiter();
  const auto caller = std::this_thread::get_id();
  std::thread::id ran_on;
  station.post([&] {
    ran_on = std::this_thread::get_id();
    EXPECT_TRUE(station.driver.driving_here());
    waiter->complete();
  });
  EXPECT_TRUE(station.driver.wait(*waiter, base::never));
  EXPECT_EQ(ran_on, caller);
  EXPECT_FALSE(station.driver.driving_here());
}

TEST(Driver, WaitEndsAtItsDeadline) {
  Station station;
  auto waiter = station.driver.make_waiter();
  EXPECT_FALSE(station.driver.wait(*waiter, later(2ms)));
  waiter->complete();
  EXPECT_TRUE(station.driver.wait(*waiter, base::never));
}

TEST(Driver, ACompletionFromElsewhereWakesTheDriver) {
  Station station;
  auto waiter = station.driver.make_waiter();
  std::thread other([&] { waiter->complete(); });
  EXPECT_TRUE(station.driver.wait(*waiter, base::never));
  other.join();
}

TEST(Driver, TheResidentDrivesWhileNobodyWaits) {
  Station station;
  station.driver.start();
  for (int i = 0; i < 100; ++i) {
    auto parker = base::Runtime::real().make_parker();
    station.post([&] { parker->unpark(); });
    ASSERT_TRUE(parker->park(later(10s)));
  }
}

TEST(Driver, AHandlerMayNotWait) {
  Station station;
  auto waiter = station.driver.make_waiter(), inner = station.driver.make_waiter();
  station.post([&] {
    EXPECT_THROW(station.driver.wait(*inner, base::never), c10::Error);
    waiter->complete();
  });
  station.driver.wait(*waiter, base::never);
}

TEST(Driver, TheRoleIsPassedOnToTheNextWhoWaits) {
  Station station;  // No resident again: if the role got lost, this would hang.
  constexpr int threads = 8;
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (int i = 0; i < threads; ++i) waiters.push_back(station.driver.make_waiter());
  std::vector<std::thread> waiting;
  for (auto& waiter : waiters) waiting.emplace_back([&] { EXPECT_TRUE(station.driver.wait(*waiter, base::never)); });
  for (auto& waiter : waiters) station.post([&] { waiter->complete(); });
  for (auto& thread : waiting) thread.join();
}

TEST(Driver, AReservationKeepsTheResidentAsleepUntilTheWait) {
  Station station;
  station.driver.start();
  auto waiter = station.driver.make_waiter();
  const auto caller = std::this_thread::get_id();
  std::thread::id ran_on;
  Driver::Reservation reservation(station.driver);
  station.post([&] {
    ran_on = std::this_thread::get_id();
    waiter->complete();
  });
  EXPECT_TRUE(station.driver.wait(*waiter, later(10s)));
  EXPECT_EQ(ran_on, caller);
}

TEST(Driver, AReservationThatIsNotUsedGoesBack) {
  Station station;
  station.driver.start();
  auto parker = base::Runtime::real().make_parker();
  {
    Driver::Reservation reservation(station.driver);
    station.post([&] { parker->unpark(); });
  }
  EXPECT_TRUE(parker->park(later(10s))) << "the resident takes over what came meanwhile";
}

TEST(Driver, NothingIsPolledAfterStop) {
  Station station;
  station.driver.start();
  auto waiter = station.driver.make_waiter();
  std::thread waiting([&] { EXPECT_FALSE(station.driver.wait(*waiter, later(50ms))); });
  station.driver.stop();
  bool ran = false;
  station.post([&] { ran = true; });
  waiting.join();
  EXPECT_FALSE(ran);
}

/// Threads that ask and wait, answered through the queue, with and without spinning.
void ask_and_answer(Station& station) {
  station.driver.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        auto waiter = station.driver.make_waiter();
        station.post([waiter] { waiter->complete(); });
        ASSERT_TRUE(station.driver.wait(*waiter, later(30s)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  station.driver.stop();
}

TEST(DriverConcurrency, EveryAnswerIsHeard) {
  Station station;
  ask_and_answer(station);
}

TEST(DriverConcurrency, EveryAnswerIsHeardBySpinners) {
  Station station(50us);
  ask_and_answer(station);
}

TEST(DriverConcurrency, EveryAnswerIsHeardInEpoll) {
  Station station;
  const int fd = ::eventfd(0, EFD_CLOEXEC);
  station.bell.watch(fd, EPOLLIN, 1);  // Never readable: it only makes sleepers use epoll.
  ask_and_answer(station);
  station.bell.unwatch(fd);
  ::close(fd);
}

TEST(SystemBell, ADescriptorWakesWhoeverSleepsAndIsHandedOverOnce) {
  SystemBell bell(0us);
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  bell.watch(fd, EPOLLIN, 42);
  bell.occupy();
  bell.clear();
  std::thread writer([&] { EXPECT_EQ(::eventfd_write(fd, 1), 0); });
  while (bell.take_ready().empty()) {
    bell.clear();
    bell.sleep(base::never);
    auto ready = bell.take_ready();
    if (ready.empty()) continue;
    EXPECT_EQ(uint64_t{ready[0].data.u64}, 42u);
    break;
  }
  EXPECT_TRUE(bell.take_ready().empty());
  writer.join();
  bell.unwatch(fd);
  ::close(fd);
}

TEST(SystemBell, ADescriptorWatchedWhileTheResidentSleepsInTheFutexIsHeard) {
  Station station;
  const int fd = ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
  std::atomic<bool> heard{false};
  auto parker = base::Runtime::real().make_parker();
  Driver driver(base::Runtime::real(), station.bell, [&] {
    for (const auto& event : station.bell.take_ready()) {
      eventfd_t value;
      ::eventfd_read(fd, &value);
      heard = event.data.u64 == 7;
      parker->unpark();
    }
    return false;
  });
  driver.start();
  station.bell.watch(fd, EPOLLIN, 7);
  EXPECT_TRUE(parker->park(later(10s)));
  EXPECT_TRUE(heard);
  driver.stop();
  station.bell.unwatch(fd);
  ::close(fd);
}

TEST(SystemBell, ResidentThatIsWokenWhileAnotherDrivesLiesDownAgain) {
  SystemBell bell(0us);
  const base::Fd watched(::eventfd(0, EFD_CLOEXEC));
  bell.watch(watched.get(), EPOLLIN, 1);
  bell.occupy();
  std::atomic<int> woken{0};
  std::atomic<bool> stop{false};
  std::thread resident([&] {
    while (!stop) {
      bell.sleep_resident();
      ++woken;
    }
  });
  bell.wake_resident();
  constexpr int spins = 1000;
  for (const auto enough = later(50ms); woken < spins && base::Clock::now() < enough;) std::this_thread::yield();

  EXPECT_LT(woken, spins);
  stop = true;
  bell.wake_resident();
  resident.join();
}

TEST(SystemBell, WhatComesWhileAnotherDrivesWakesTheResidentOnlyOnceThePlaceIsVacant) {
  SystemBell bell(0us);
  const base::Fd watched(::eventfd(0, EFD_CLOEXEC));
  bell.watch(watched.get(), EPOLLIN, 7);
  bell.occupy();
  bell.clear();  // The first watch() rings.
  bell.vacate();
  bell.occupy();
  std::atomic<bool> woken{false};
  std::thread resident([&] {
    bell.sleep_resident();
    woken = true;
  });
  ::eventfd_write(watched.get(), 1);
  bell.sleep(base::never);
  auto ready = bell.take_ready();
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(uint64_t{ready[0].data.u64}, 7u);
  EXPECT_FALSE(woken);

  ::eventfd_write(watched.get(), 1);
  bell.vacate();
  resident.join();
  bell.occupy();
  bell.clear();
  ready = bell.take_ready();
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(uint64_t{ready[0].data.u64}, 7u);
}

}  // namespace
}  // namespace farad::net
