// What those who serve a name have open, and what they say when they lose it.

#include <farad/shared.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "shared/broker.h"
#include "shared/no_fork.h"
#include "unit/shared/models.h"

namespace farad::shared {
namespace {

using namespace std::chrono_literals;

TEST(SharedBroker, WhoFindsThatAnotherModelHasTheNameSaysSo) {
  const auto name = fresh_name();
  Linear module = linear(), other = linear();
  const auto model = Model::create(name, module);
  const auto before = Model::create(fresh_name(), other);
  testing::internal::CaptureStderr();
  const auto late = Broker::stand_by(name, segment_of(before.name()));  // As if it had been, and then came too late.
  for (const auto end = std::chrono::steady_clock::now() + 30s; !late->has_lost_the_name();) {
    if (std::chrono::steady_clock::now() > end) break;
    std::this_thread::yield();
  }
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(late->has_lost_the_name());
  EXPECT_THAT(said, testing::AllOf(testing::HasSubstr(name), testing::HasSubstr("another model was created")));
  EXPECT_EQ(segment_of(name)->header().identity, model.handle().identity) << "it leaves the name to the other one";
  EXPECT_FALSE(model.stats().name_lost);
}

TEST(SharedBroker, AChildFindsWhatIsChangedWhileNobodyMayForkAsAWhole) {
  std::array<std::atomic<uint64_t>, 2> halves{};
  std::atomic<bool> over = false;
  std::thread changing([&] {
    for (uint64_t i = 0; !over; ++i) {
      {
        const NoFork no_fork;
        halves[0].store(i);
        std::this_thread::yield();
        halves[1].store(i);
      }
      std::this_thread::yield();
    }
  });
  int wrong = 0;
  for (int child = 0; child < 100; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const NoFork its_own;  // Nobody keeps it from that.
      ::_exit(halves[0] == halves[1] ? 0 : 1);
    }
    int status = -1;
    ::waitpid(pid, &status, 0);
    wrong += status != 0;
  }
  over = true;
  changing.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace farad::shared
