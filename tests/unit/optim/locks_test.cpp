#include "optim/locks.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace farad::optim {
namespace {

class Locks : public testing::Test {
 protected:
  ParameterLocks::Parameters some(std::vector<size_t> which) {
    ParameterLocks::Parameters parameters;
    for (const auto each : which) parameters.push_back(&memory_[each]);
    return parameters;
  }
  void lock(uint64_t step, std::vector<size_t> which) {
    locks_.lock({1, step}, some(which),
                [this, step](bool granted) { (granted ? granted_ : gave_up_).push_back(step); });
  }
  bool try_lock(uint64_t step, std::vector<size_t> which) { return locks_.try_lock({1, step}, some(which)); }
  void unlock(uint64_t step) { locks_.unlock({1, step}); }

  using Steps = std::vector<uint64_t>;
  ParameterLocks locks_;
  char memory_[4] = {};
  Steps granted_, gave_up_;
};

TEST_F(Locks, StepsThatShareNothingRunTogether) {
  EXPECT_TRUE(try_lock(1, {0, 1}));
  EXPECT_TRUE(try_lock(2, {2, 3}));
}

TEST_F(Locks, StepsThatShareAParameterTakeTurns) {
  EXPECT_TRUE(try_lock(1, {0, 1}));
  EXPECT_FALSE(try_lock(2, {1, 2}));
  lock(3, {1, 2});
  EXPECT_EQ(granted_, Steps{});
  unlock(1);
  EXPECT_EQ(granted_, Steps{3});
}

TEST_F(Locks, WhoWaitsIsNotOvertaken) {
  EXPECT_TRUE(try_lock(1, {0}));
  lock(2, {0, 1});
  EXPECT_FALSE(try_lock(3, {1})) << "2 was first in asking for it";
  lock(4, {1});
  unlock(1);
  EXPECT_EQ(granted_, Steps{2});
  unlock(2);
  EXPECT_EQ(granted_, (Steps{2, 4}));
}

TEST_F(Locks, WhoGivesUpStandsInNobodysWay) {
  EXPECT_TRUE(try_lock(1, {0}));
  lock(2, {0, 1});
  lock(3, {1});
  locks_.give_up({1, 2});
  EXPECT_EQ(gave_up_, Steps{2});
  EXPECT_EQ(granted_, Steps{3});
  locks_.give_up({1, 3});  // It waits no more.
  EXPECT_EQ(gave_up_, Steps{2});
}

TEST_F(Locks, WhoWaitsIsForgottenWhenTheWorkerEnds) {
  EXPECT_TRUE(try_lock(1, {0}));
  const auto waits = std::make_shared<int>();
  const auto ask = [&](uint64_t step) {
    locks_.lock({1, step}, some({0}), [waits, this](bool) { granted_.push_back(0); });
  };
  ask(2);
  EXPECT_EQ(waits.use_count(), 2);
  locks_.close();
  ask(3);
  EXPECT_EQ(waits.use_count(), 1);
  unlock(1);
  EXPECT_EQ(granted_, Steps{});
}

}  // namespace
}  // namespace farad::optim
