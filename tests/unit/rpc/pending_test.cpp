#include "rpc/pending.h"

#include <gtest/gtest.h>

namespace farad::rpc {
namespace {

using namespace std::chrono_literals;
using base::Incarnation;
using base::Rank;
using base::TimePoint;

constexpr Rank one{1}, two{2};

PendingCall call_to(Rank to, TimePoint deadline = base::never) {
  return {to, {nullptr, "f"}, deadline, {}, nullptr, {}};
}

TEST(PendingCalls, EachIsTakenOnce) {
  PendingCalls calls(7);
  const auto a = calls.add(call_to(one)), b = calls.add(call_to(one));

  EXPECT_NE(a, b);
  EXPECT_EQ(a, 7u) << "numbers begin where they are told to";
  EXPECT_TRUE(calls.take(a));
  EXPECT_FALSE(calls.take(a));
  EXPECT_EQ(calls.size(), 1u);
}

TEST(PendingCalls, LossTakesThoseOfThatLifeOnlyInTheOrderTheyWereMade) {
  PendingCalls calls(1);
  for (const char* name : {"first", "second"}) {
    auto call = call_to(one);
    call.callee.name = name;
    const auto id = calls.add(std::move(call));
    EXPECT_FALSE(calls.sent(id, Incarnation(1)));
  }
  const auto later_life = calls.add(call_to(one)), other = calls.add(call_to(two)), unsent = calls.add(call_to(one));
  EXPECT_FALSE(calls.sent(later_life, Incarnation(2)));
  EXPECT_FALSE(calls.sent(other, Incarnation(1)));

  const auto lost = calls.take_all_of({one, Incarnation(1)});

  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0].callee.text(), "first");
  EXPECT_EQ(lost[1].callee.text(), "second");
  for (auto id : {later_life, other, unsent}) EXPECT_TRUE(calls.take(id));
}

TEST(PendingCalls, OneThatWentToALifeThatIsOverIsGivenBack) {
  PendingCalls calls(1);
  const auto id = calls.add(call_to(one));
  calls.take_all_of({one, Incarnation(3)});

  EXPECT_TRUE(calls.sent(id, Incarnation(3)));
  EXPECT_FALSE(calls.take(id));
}

TEST(PendingCalls, ReplyMayBeQuickerThanTheSender) {
  PendingCalls calls(1);
  const auto id = calls.add(call_to(one));
  ASSERT_TRUE(calls.take(id));

  EXPECT_FALSE(calls.sent(id, Incarnation(1)));
}

TEST(PendingCalls, TimeRunsOutForThoseThatWereSent) {
  PendingCalls calls(1);
  const TimePoint start{};
  const auto early = calls.add(call_to(one, start + 1s)), late = calls.add(call_to(one, start + 3s)),
             unsent = calls.add(call_to(one, start + 1s)), patient = calls.add(call_to(one));
  for (auto id : {early, late, patient}) EXPECT_FALSE(calls.sent(id, Incarnation(1)));
  TimePoint next;

  const auto expired = calls.give_up_expired(start + 2s, next);

  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].first, early);
  EXPECT_EQ(next, start + 3s);
  EXPECT_TRUE(calls.take(late));
  EXPECT_TRUE(calls.give_up_expired(start + 4s, next).empty());
  EXPECT_EQ(next, base::never);
  EXPECT_FALSE(calls.sent(unsent, Incarnation(1)));
  EXPECT_EQ(calls.give_up_expired(start + 4s, next).size(), 1u);
  EXPECT_EQ(calls.take_all().size(), 1u) << "the one without a deadline";
}

/// Three calls to worker1 that keep something, by the ways in which a call is given up.
class GivenUp : public testing::Test {
 protected:
  GivenUp() {
    for (int i = 0; i < 3; ++i) {
      auto call = call_to(one, i == 2 ? TimePoint{} + 1s : base::never);
      call.keep = kept_;
      ids_.push_back(calls_.add(std::move(call)));
      EXPECT_FALSE(calls_.sent(ids_[i], Incarnation(1)));
    }
  }
  int64_t kept() const { return kept_.use_count() - 1; }

  const std::shared_ptr<int> kept_ = std::make_shared<int>();
  PendingCalls calls_{1};
  std::vector<uint64_t> ids_;
  TimePoint next_;
};

TEST_F(GivenUp, WhatItKeepsStaysUntilItsCalleeHasEndedIt) {
  // A reply between these two steps would be the end of a call that nobody has noted: so there are no two steps.
  EXPECT_TRUE(calls_.give_up(ids_[0]));
  EXPECT_EQ(calls_.give_up_expired(TimePoint{} + 2s, next_).size(), 1u);
  EXPECT_EQ(kept(), 3);
  EXPECT_EQ(calls_.given_up(), 2u);

  for (const auto id : {ids_[0], ids_[2]}) {
    EXPECT_FALSE(calls_.take(id)) << "the reply is late";
    EXPECT_EQ(calls_.let_go(id), kept_);
    EXPECT_EQ(calls_.let_go(id), nullptr);
  }

  EXPECT_EQ(kept(), 1) << "by the one that still waits";
  EXPECT_EQ(calls_.given_up(), 0u);
}

TEST_F(GivenUp, AfterItsReplyNothingIsKept) {
  EXPECT_TRUE(calls_.take(ids_[0]));

  EXPECT_FALSE(calls_.give_up(ids_[0]));

  EXPECT_EQ(kept(), 2);
  EXPECT_EQ(calls_.given_up(), 0u);
}

TEST_F(GivenUp, WhatItKeepsGoesWithThatLifeOfItsCallee) {
  EXPECT_TRUE(calls_.give_up(ids_[0]));

  EXPECT_TRUE(calls_.let_go_of({one, Incarnation(2)}).empty());
  EXPECT_EQ(calls_.take_all_of({one, Incarnation(1)}).size(), 2u);
  EXPECT_EQ(calls_.let_go_of({one, Incarnation(1)}).size(), 1u);

  EXPECT_EQ(kept(), 0);
  EXPECT_FALSE(calls_.give_up(ids_[1])) << "its loss has ended it";
}

}  // namespace
}  // namespace farad::rpc
