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

  const auto expired = calls.take_expired(start + 2s, next);

  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].first, early);
  EXPECT_EQ(next, start + 3s);
  EXPECT_TRUE(calls.take(late));
  EXPECT_TRUE(calls.take_expired(start + 4s, next).empty());
  EXPECT_EQ(next, base::never);
  EXPECT_FALSE(calls.sent(unsent, Incarnation(1)));
  EXPECT_EQ(calls.take_expired(start + 4s, next).size(), 1u);
  EXPECT_EQ(calls.take_all().size(), 1u) << "the one without a deadline";
}

}  // namespace
}  // namespace farad::rpc
