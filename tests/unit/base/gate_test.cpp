#include "base/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace farad::base {
namespace {

TEST(Gate, SaysThatItIsEmptyOnceSomebodyWantsToKnow) {
  int told = 0;
  Gate gate([&] { ++told; });
  gate.enter();
  gate.leave();
  EXPECT_EQ(told, 0) << "nobody has asked";
  gate.watch();
  gate.enter();
  gate.enter();
  gate.leave();
  EXPECT_FALSE(gate.empty());
  EXPECT_EQ(told, 0) << "one is inside";
  gate.leave();
  EXPECT_TRUE(gate.empty());
  EXPECT_EQ(told, 1);
}

TEST(Gate, LetsInWhoComesWhileItEmpties) {
  int told = 0;
  Gate* own = nullptr;
  Gate gate([&] {
    if (++told > 1) return;
    own->enter();  // What was inside has left something to be done.
    own->leave();
  });
  own = &gate;
  gate.watch();
  gate.enter();
  gate.leave();
  EXPECT_EQ(told, 2);
}

TEST(Gate, WhoeverWatchesWhileManyPassMissesNoEnd) {
  std::atomic<bool> told = false;
  Gate gate([&] { told.store(true); });
  gate.enter();  // By this thread, so that it is not empty before it is watched.
  std::vector<std::thread> passing;
  for (int t = 0; t < 4; ++t) {
    gate.enter();
    passing.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        gate.enter();
        gate.leave();
      }
      gate.leave();
    });
  }
  gate.watch();
  EXPECT_FALSE(told.load());
  gate.leave();
  for (auto& thread : passing) thread.join();
  EXPECT_TRUE(gate.empty());
  EXPECT_TRUE(told.load());
}

}  // namespace
}  // namespace farad::base
