// What the bell of a real worker shows its driver of descriptors.

#include "net/system_bell.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace farad::net {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t cookie = 7;

class SystemBellTest : public testing::Test {
 protected:
  SystemBellTest() { bell.watch(watched.get(), EPOLLIN, cookie); }

  /// Sleeps for a moment, and says how often the descriptor was shown after that.
  size_t shown_after_sleep() {
    bell.sleep(base::Clock::now() + 5ms);
    bell.clear();
    size_t shown = 0;
    for (const auto& event : bell.take_ready()) shown += event.data.u64 == cookie;
    return shown;
  }

  /// The same of as many sleeps as it takes, because only who yields guesses, and after a yield that took long, as on a
  /// busy core, that is left for a while.
  size_t shown_at_last() {
    size_t shown = 0;
    for (int sleeps = 0; sleeps < 1000 && shown == 0; ++sleeps) shown = shown_after_sleep();
    return shown;
  }

  base::Fd watched{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  SystemBell bell{50us};
};

TEST_F(SystemBellTest, ShowsADescriptorThatHasSomethingOnce) {
  bell.clear();
  const uint64_t one = 1;
  ASSERT_EQ(::write(watched.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  EXPECT_EQ(shown_after_sleep(), 1);
  EXPECT_EQ(shown_after_sleep(), 0);
}

TEST_F(SystemBellTest, GuessesThatTheSameDescriptorHasTheNextMessageButOnce) {
  bell.clear();
  bell.found(cookie);
  EXPECT_EQ(shown_after_sleep(), 0) << "once is no habit";
  bell.found(cookie);
  EXPECT_EQ(shown_at_last(), 1);
  EXPECT_EQ(shown_after_sleep(), 0) << "nothing was found the last time";
}

TEST_F(SystemBellTest, DoesNotGuessWhileDescriptorsTakeTurns) {
  bell.clear();
  for (int i = 0; i < 3; ++i) {
    bell.found(cookie);
    EXPECT_EQ(shown_after_sleep(), 0);
    bell.found(cookie + 1);
    EXPECT_EQ(shown_after_sleep(), 0);
  }
}

}  // namespace
}  // namespace farad::net
