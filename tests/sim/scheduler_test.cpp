#include "net/sim/scheduler.h"

#include <farad/error.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace farad::net::sim {
namespace {

using namespace std::chrono_literals;

struct Outcome {
  std::string order;
  uint64_t hash;
};

// Five threads that each wait three times; who writes when is up to the seed.
Outcome interleave(uint64_t seed) {
  Scheduler world(seed, 1h);
  std::string order;
  world.run([&] {
    std::vector<std::unique_ptr<base::Thread>> threads;
    for (char name : {'a', 'b', 'c', 'd', 'e'}) {
      threads.push_back(world.start(std::string(1, name), [&world, &order, name] {
        auto parker = world.make_parker();
        for (int i = 0; i < 3; ++i) {
          order += name;
          parker->park(world.now());
        }
      }));
    }
  });
  return {order, world.trace().hash()};
}

TEST(Scheduler, SameSeedGivesTheSameRun) {
  const auto first = interleave(7), second = interleave(7);

  EXPECT_EQ(first.order, second.order);
  EXPECT_EQ(first.hash, second.hash);
}

TEST(Scheduler, OtherSeedsGiveOtherRuns) {
  const auto first = interleave(1), second = interleave(2);

  EXPECT_NE(first.order, second.order);
  EXPECT_NE(first.hash, second.hash);
}

TEST(Scheduler, ClockLeapsToTheNextDeadlineWhenNobodyCanRun) {
  Scheduler world(1, 24h);
  world.run([&] {
    auto parker = world.make_parker();
    const auto before = world.now();

    EXPECT_FALSE(parker->park(before + 10h));

    EXPECT_GE(world.now() - before, 10h);
    EXPECT_LT(world.now() - before, 10h + 1s);
  });
}

TEST(Scheduler, WakeBeforeTheWaitIsKeptOnce) {
  Scheduler world(1, 1h);
  world.run([&] {
    auto parker = world.make_parker();
    parker->unpark();
    parker->unpark();

    EXPECT_TRUE(parker->park(base::never));
    EXPECT_FALSE(parker->park(world.now() + 1s));
  });
}

TEST(Scheduler, SpinningForATimeEnds) {
  Scheduler world(1, 1h);
  world.run([&] {
    const auto until = world.now() + 50us;
    while (world.now() < until) {
    }
  });
}

TEST(Scheduler, DeadlockNamesEveryThreadAndItsWait) {
  Scheduler world(1, 1h);
  try {
    world.run([&] {
      auto stuck = world.start("stuck", [&] { world.make_parker("the egg")->park(base::never); });
      world.make_parker("the hen")->park(base::never);
    });
    FAIL() << "a deadlock must be reported";
  } catch (const Error& error) {
    const std::string text = error.what_without_backtrace();
    EXPECT_NE(text.find("\"first\" waits for the hen"), std::string::npos) << text;
    EXPECT_NE(text.find("\"stuck\" waits for the egg"), std::string::npos) << text;
  }
}

TEST(Scheduler, WorldThatGoesOnForEverIsReported) {
  Scheduler world(1, 1s);
  EXPECT_THROW(world.run([&] {
    auto parker = world.make_parker();
    while (true) parker->park(world.now() + 1ms);
  }),
               Error);
}

TEST(Scheduler, FirstExceptionComesOutOfRunAndOthersAreUnwound) {
  struct Flag {
    bool& raised;
    ~Flag() { raised = true; }
  };
  Scheduler world(3, 1h);
  bool unwound = false;
  EXPECT_THROW(world.run([&] {
    auto other = world.start("other", [&] {
      Flag flag{unwound};
      world.make_parker()->park(base::never);
    });
    world.make_parker()->park(world.now() + 1s);
    throw std::runtime_error("on purpose");
  }),
               std::runtime_error);
  EXPECT_TRUE(unwound);
}

TEST(Scheduler, KilledProcessNeverRunsAgain) {
  Scheduler world(5, 1h);
  int ticks = 0;
  world.run([&] {
    const Process victim = world.make_process();
    auto thread = world.start_process(victim, "victim", [&] {
      // What the victim starts dies with it.
      auto child = world.start("child", [&] {
        auto parker = world.make_parker();
        while (true) {
          ++ticks;
          parker->park(world.now() + 1ms);
        }
      });
      world.make_parker()->park(base::never);
    });
    auto parker = world.make_parker();
    parker->park(world.now() + 1s);
    world.kill(victim);
    const int seen = ticks;
    EXPECT_GT(seen, 0);

    parker->park(world.now() + 1s);

    EXPECT_EQ(ticks, seen);
  });
}

TEST(Scheduler, StoppedProcessGoesOnWhereItWas) {
  Scheduler world(5, 1h);
  world.run([&] {
    int ticks = 0;
    const Process process = world.make_process();
    auto thread = world.start_process(process, "stopped", [&] {
      auto parker = world.make_parker();
      for (int i = 0; i < 100; ++i) {
        ++ticks;
        parker->park(world.now() + 1ms);
      }
    });
    auto parker = world.make_parker();
    parker->park(world.now() + 10ms);
    world.freeze(process);
    const int seen = ticks;
    parker->park(world.now() + 1s);
    EXPECT_EQ(ticks, seen);

    world.thaw(process);
    thread.reset();

    EXPECT_EQ(ticks, 100);
  });
}

TEST(Scheduler, ThousandThreadsAreCheap) {
  Scheduler world(11, 1h);
  int ended = 0;
  world.run([&] {
    std::vector<std::unique_ptr<base::Thread>> threads;
    for (int i = 0; i < 1000; ++i) {
      threads.push_back(world.start("one of many", [&] {
        auto parker = world.make_parker();
        for (int k = 0; k < 5; ++k) parker->park(world.now() + 1ms);
        ++ended;
      }));
    }
  });
  EXPECT_EQ(ended, 1000);
}

}  // namespace
}  // namespace farad::net::sim
