#include "net/in_place.h"

#include <gtest/gtest.h>

#include <thread>

#include "unit/net/station.h"

namespace farad::net {
namespace {

using namespace std::chrono_literals;

void make_short(Cost& cost) {
  for (int i = 0; i < 3; ++i) cost.note(1us);
}

/// A driver with a resident, an executor, and work that comes by message.
struct Place {
  Place() {
    make_short(cost);
    station.driver.start();
  }
  ~Place() {
    station.driver.stop();
    station.driver.residents().join();
    executor.close();
  }

  /// Has `tasks` taken in by whoever drives, all in one poll.
  void post(std::vector<std::function<void()>> tasks) {
    station.post([this, tasks = std::move(tasks)] {
      polled_on = std::this_thread::get_id();
      for (const auto& task : tasks) in_place.run(cost, task);
    });
  }

  Station station;
  base::Executor executor{base::Runtime::real(), "test", 1};
  InPlace in_place{base::Runtime::real(), station.driver, executor};
  Cost cost;
  std::thread::id polled_on;
  std::unique_ptr<base::Parker> done = base::Runtime::real().make_parker();
};

TEST(Cost, IsUnknownAtFirst) {
  Cost cost;
  EXPECT_FALSE(cost.is_short());
  cost.note(1us);
  EXPECT_FALSE(cost.is_short());
}

TEST(Cost, OneLongTimeAmongShortOnesDoesNotCount) {
  Cost cost;
  make_short(cost);
  for (int round = 0; round < 5; ++round) {
    cost.note(60s);
    EXPECT_TRUE(cost.is_short());
    for (int i = 0; i < 3; ++i) cost.note(1us);
  }
}

TEST(Cost, TwoLongTimesCountForMoreThanAFewShortOnesAndAreForgottenInTheEnd) {
  Cost cost;
  make_short(cost);
  EXPECT_TRUE(cost.is_short());
  cost.note(60s);
  cost.note(1us);
  cost.note(60s);
  EXPECT_FALSE(cost.is_short());
  cost.note(1us);
  EXPECT_FALSE(cost.is_short());
  for (int i = 0; i < 30; ++i) cost.note(1us);
  EXPECT_TRUE(cost.is_short());
}

TEST(InPlace, WhatIsShortRunsOnTheThreadThatTookItIn) {
  Place place;
  std::thread::id ran_on;
  bool driving = true;
  place.post({[&] {
    ran_on = std::this_thread::get_id();
    driving = place.station.driver.driving_here();
    place.done->unpark();
  }});
  ASSERT_TRUE(place.done->park(later(10s)));
  EXPECT_EQ(ran_on, place.polled_on);
  EXPECT_FALSE(driving) << "it may wait, so it must not hold the role";
}

TEST(InPlace, WhatIsNotKnownToBeShortRunsOnTheExecutor) {
  Place place;
  for (int i = 0; i < 2; ++i) place.cost.note(1s);
  std::thread::id ran_on;
  place.post({[&] {
    ran_on = std::this_thread::get_id();
    place.done->unpark();
  }});
  ASSERT_TRUE(place.done->park(later(10s)));
  EXPECT_NE(ran_on, place.polled_on);
}

TEST(InPlace, AThreadThatWaitsHandsWorkToTheExecutor) {
  Place place;
  auto waiter = place.station.driver.make_waiter();
  std::thread::id ran_on;
  const Driver::Reservation we_drive(place.station.driver);
  // It keeps the waiter: whoever waits may go on, and end, before complete() has returned.
  place.post({[&ran_on, waiter] {
    ran_on = std::this_thread::get_id();
    waiter->complete();
  }});
  EXPECT_TRUE(place.station.driver.wait(*waiter, later(10s)));
  EXPECT_EQ(place.polled_on, std::this_thread::get_id());
  EXPECT_NE(ran_on, place.polled_on);
}

TEST(InPlace, WhoWaitsAsideLeavesWorkToTheResident) {
  Place place;
  auto waiter = place.station.driver.make_waiter();
  std::thread::id ran_on;
  std::thread server([&] { EXPECT_TRUE(place.station.driver.wait_aside(*waiter, later(10s))); });
  // It keeps the waiter: whoever waits may go on, and end, before complete() has returned.
  place.post({[&ran_on, waiter] {
    ran_on = std::this_thread::get_id();
    waiter->complete();
  }});
  server.join();
  EXPECT_EQ(ran_on, place.polled_on);
}

// The watchdog: nothing else could take in what ends the long one.
TEST(InPlace, MessagesAreTakenInWhileWhatWasTakenForShortLasts) {
  Place place;
  auto told = base::Runtime::real().make_parker();
  for (int i = 0; i < 3; ++i) {  // The threads that were held up take over in turn.
    make_short(place.cost);
    bool was_told = false;
    auto began = base::Runtime::real().make_parker();
    place.post({[&] {
      began->unpark();
      was_told = told->park(later(10s));
      place.done->unpark();
    }});
    ASSERT_TRUE(began->park(later(10s)));
    place.station.post([&] { told->unpark(); });
    ASSERT_TRUE(place.done->park(later(20s)));
    EXPECT_TRUE(was_told);
    for (int n = 0; n < 30; ++n) place.cost.note(1us);
  }
}

TEST(InPlace, WhatStandsBehindALongOneRunsElsewhere) {
  Place place;
  auto told = base::Runtime::real().make_parker();
  bool was_told = false;
  place.post({[&] {
                was_told = told->park(later(10s));
                place.done->unpark();
              },
              [&] { told->unpark(); }});
  ASSERT_TRUE(place.done->park(later(20s)));
  EXPECT_TRUE(was_told);
}

TEST(InPlace, WhatRunsInPlaceMayWaitForMessages) {
  Place place;
  auto waiter = place.station.driver.make_waiter();
  bool came = false;
  place.post({[&] {
    place.station.post([&] { waiter->complete(); });
    came = place.station.driver.wait(*waiter, later(10s));
    place.done->unpark();
  }});
  ASSERT_TRUE(place.done->park(later(20s)));
  EXPECT_TRUE(came);
}

TEST(InPlace, StopWaitsForNoWorkAndJoinDoes) {
  Place place;
  auto told = base::Runtime::real().make_parker();
  std::atomic<bool> ended{false};
  auto began = base::Runtime::real().make_parker();
  place.post({[&] {
    began->unpark();
    EXPECT_TRUE(told->park(later(10s)));
    ended = true;
  }});
  ASSERT_TRUE(began->park(later(10s)));
  place.station.driver.stop();
  EXPECT_FALSE(ended);
  told->unpark();
  place.station.driver.residents().join();
  EXPECT_TRUE(ended);
}

TEST(InPlaceConcurrency, EveryTaskRunsOnceWhateverWasLong) {
  Place place;
  constexpr int many = 2000;
  std::atomic<int> ran{0};
  auto one = [&](int i) {
    return [&, i] {
      if (i % 500 == 0) base::Runtime::real().make_parker()->park(later(3ms));  // Nobody wakes it.
      if (++ran == many) place.done->unpark();
    };
  };
  for (int i = 0; i < many; i += 4) {
    if (i % 100 == 0) make_short(place.cost);
    place.post({one(i), one(i + 1), one(i + 2), one(i + 3)});
  }
  EXPECT_TRUE(place.done->park(later(30s)));
  EXPECT_EQ(ran, many);
}

}  // namespace
}  // namespace farad::net
