#include "net/yielding.h"

#include <gtest/gtest.h>

namespace farad::net {
namespace {

using namespace std::chrono_literals;

/// A core on which each yield takes as long as it is told.
struct Core {
  base::TimePoint now{1h};
  Yielding yielding;

  /// A wait whose one yield takes `took`; false if it did not even begin, or the yield was called a long one.
  bool wait(base::Duration took, bool came) {
    if (!yielding.willing(now)) return false;
    const auto from = now;
    now += took;
    if (!yielding.note(from, now, came)) return false;
    yielding.note_wait(came);
    return true;
  }
};

TEST(Yielding, GoesOnAsLongAsItIsQuickAndOfUse) {
  Core core;
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(core.wait(3us, true));
}

TEST(Yielding, GoesOnBesideAPeerThatComputes) {
  Core core;
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(core.wait(200us, true));
  EXPECT_FALSE(core.wait(200us, false));  // That was not the peer.
  EXPECT_FALSE(core.yielding.willing(core.now));
}

TEST(Yielding, PausesWhenSomebodyElseHadTheCore) {
  Core core;
  ASSERT_FALSE(core.wait(3ms, true));  // Even if we were rung meanwhile.
  EXPECT_FALSE(core.yielding.willing(core.now));
  EXPECT_FALSE(core.yielding.willing(core.now + Yielding::first_pause - 1us));
  EXPECT_TRUE(core.yielding.willing(core.now + Yielding::first_pause));
}

TEST(Yielding, LosesLittleTimeToABusyCore) {
  Core core;
  const auto begin = core.now;
  base::Duration lost{};
  while (core.now < begin + 60s) {
    const auto before = core.now;
    (void)core.wait(4ms, true);
    lost += core.now - before;
    core.now += 10us;  // The wait, slept.
  }
  EXPECT_LT(lost, 300ms);
}

TEST(Yielding, ForgivesACoreThatIsQuietAgain) {
  Core core;
  for (int i = 0; i < 5; ++i) {
    ASSERT_FALSE(core.wait(4ms, true));
    core.now += Yielding::longest_pause;
  }
  for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(core.wait(3us, true));
  ASSERT_FALSE(core.wait(4ms, true));
  EXPECT_TRUE(core.yielding.willing(core.now + Yielding::first_pause));
}

TEST(Yielding, LeavesItForAWhileAfterWaitsInVain) {
  Core core;
  int tried = 0;
  for (int i = 0; i < 720; ++i) tried += core.wait(1us, false);
  EXPECT_GT(tried, 0);
  EXPECT_LE(tried, 720 / 8);
  // Then the peer is quick again, and that is found out.
  bool found = false;
  for (int i = 0; i < 100 && !found; ++i) found = core.wait(1us, true);
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace farad::net
