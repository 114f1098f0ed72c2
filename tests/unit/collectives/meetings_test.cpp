// How members of a group meet: the protocol by itself. Member 0 of three is under test, unless said otherwise.

#include "collectives/meetings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "suites/seeds.h"

namespace farad::collectives {
namespace {

using base::Code;
using base::Status;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t among_all = 0;
constexpr uint64_t from_0_to_1 = 2;
constexpr uint64_t from_1_to_0 = 4;
constexpr uint64_t from_2_to_0 = 7;

Signature reduction(int64_t elements = 2) { return {Operation::AllReduce, 0, 0, 7, {{elements}}, false}; }

Contribution contribution(Signature signature = reduction()) {
  Contribution one;
  one.signature = std::move(signature);
  return one;
}

class MeetingsTest : public testing::Test {
 protected:
  MeetingsTest() : meetings_(0, [](int member) { return "member " + std::to_string(member); }, "the group") {}

  Path begin(uint64_t channel = among_all) {
    auto path = meetings_.begin(channel);
    path.push_back(0);
    meetings_.begin(path);
    return path;
  }
  void open(const Path& path, std::vector<int> from = {1, 2}) { meetings_.open(path, from, from, reduction(), out_); }
  void expect_done(const Path& path, Code code, const std::string& text = "") {
    ASSERT_EQ(out_.done.size(), 1u);
    EXPECT_EQ(out_.done[0].path, path);
    EXPECT_EQ(out_.done[0].status.code(), code) << out_.done[0].status.message();
    EXPECT_THAT(out_.done[0].status.message(), HasSubstr(text));
  }

  Meetings meetings_;
  Effects out_;
};

TEST_F(MeetingsTest, IsOverWhenAllHaveComeWhicheverComesFirst) {
  const auto path = begin();
  meetings_.came(path, 2, contribution(), out_);  // Before anybody here waits.
  EXPECT_TRUE(out_.done.empty());
  open(path);
  EXPECT_TRUE(out_.done.empty());
  meetings_.came(path, 1, contribution(), out_);
  expect_done(path, Code::Ok);
  EXPECT_EQ(out_.done[0].came.size(), 2u);
  EXPECT_TRUE(out_.tell.empty());
  EXPECT_EQ(meetings_.kept(), 0u);
}

TEST_F(MeetingsTest, WhatComesUnderAnotherNameCountsBeforeAndAfterItIsOpen) {
  const auto exchange = begin(from_1_to_0);
  const Path here{from_1_to_0, exchange[1], 0, 0}, there{from_1_to_0, exchange[1], 0, 77};
  for (const bool early : {true, false}) {
    out_ = {};
    const auto come = [&] { meetings_.came(there, 1, contribution(), out_); };
    if (early) come();
    meetings_.name(here, there);
    open(here, {1});
    if (!early) come();
    expect_done(here, Code::Ok);
    EXPECT_EQ(meetings_.kept(), 0u);
    meetings_.end(here);
  }
}

TEST_F(MeetingsTest, WhoDoesNotDoTheSameIsNamedAndAllAreTold) {
  const auto path = begin();
  open(path);
  meetings_.came(path, 2, contribution(reduction(3)), out_);
  expect_done(path, Code::Invalid, "member 2 called");
  ASSERT_EQ(out_.tell.size(), 1u);
  EXPECT_THAT(out_.tell[0].members, ElementsAre(1, 2));
  EXPECT_EQ(out_.tell[0].why.code(), Code::Invalid);
}

TEST_F(MeetingsTest, WhoHearsThatItFailedElsewhereDoesNotSpreadIt) {
  const auto path = begin();
  meetings_.failed(path, 1, {Code::Timeout, "member 2 did not come"}, out_);
  open(path);
  expect_done(path, Code::Timeout, "member 2 did not come (as member 1 says)");
  EXPECT_TRUE(out_.tell.empty());
}

TEST_F(MeetingsTest, WhoeverSkipsASectionFailsThoseThatWaitThereAndThoseThatWill) {
  const auto before = begin(), waits = begin(), later = begin();
  meetings_.came(before, 1, contribution(), out_);
  open(waits);
  meetings_.skipped(1, {waits[1], uint64_t{1} << 32}, {Code::Aborted, "it fell over"}, out_);
  expect_done(waits, Code::Aborted, "member 1 takes no part in it (it fell over)");
  EXPECT_TRUE(out_.tell.empty()) << "that one tells everybody itself";
  out_ = {};
  open(later);
  expect_done(later, Code::Aborted);
  out_ = {};
  open(before);
  meetings_.came(before, 2, contribution(), out_);
  expect_done(before, Code::Ok);
}

TEST_F(MeetingsTest, AfterASectionAllGoOnWithTheNext) {
  const auto last = begin();
  Path early{among_all, last[1] + 1, 0}, ahead{among_all, uint64_t{1} << 32, 0};
  meetings_.came(early, 1, contribution(), out_);
  meetings_.came(ahead, 1, contribution(), out_);  // It has skipped before us.
  const Status why{Code::Aborted, "it fell over"};
  const auto gap = meetings_.skip_section(why, out_);
  EXPECT_EQ(gap.first, last[1] + 1);
  meetings_.skipped(1, gap, why, out_);  // We know.
  meetings_.came(early, 2, contribution(), out_);
  EXPECT_EQ(meetings_.kept(), 1u) << "what belongs to the old one is not kept";
  const auto next = begin();
  EXPECT_EQ(next, ahead);
  open(next);
  meetings_.came(next, 2, contribution(), out_);
  expect_done(next, Code::Ok);
  out_ = {};
  open(last);
  expect_done(last, Code::Aborted, "number 0 of the group");
}

TEST_F(MeetingsTest, WhatStillWaitsInASectionThatIsLeftFailsAsDoesWhatWillWait) {
  const auto before = begin(), waits = begin(), later = begin(), complete = begin(), other = begin(from_1_to_0);
  for (const int member : {1, 2}) {
    meetings_.came(before, member, contribution(), out_);
    meetings_.came(complete, member, contribution(), out_);
  }
  open(before);
  out_ = {};
  auto backward = before;
  backward.push_back(0);
  open(backward);
  open(other, {1});
  open(waits);
  meetings_.came(waits, 1, contribution(), out_);
  meetings_.skip_section({Code::Aborted, "it fell over"}, out_);
  expect_done(waits, Code::Aborted, "member 0 takes no part in it any more (it fell over)");
  ASSERT_EQ(out_.tell.size(), 1u) << "they may be in it, and would hear only of what this member has left out";
  EXPECT_THAT(out_.tell[0].members, ElementsAre(1, 2));
  out_ = {};
  open(later);
  expect_done(later, Code::Aborted, "(it fell over)");
  out_ = {};
  open(complete);
  expect_done(complete, Code::Ok);
  out_ = {};
  // Neither what two do with each other nor a backward is of the section.
  meetings_.came(other, 1, contribution(), out_);
  expect_done(other, Code::Ok);
  out_ = {};
  for (const int member : {1, 2}) meetings_.came(backward, member, contribution(), out_);
  expect_done(backward, Code::Ok);
}

TEST_F(MeetingsTest, WhoDoesNotComeIsNamedAndSoIsWhereItIs) {
  const auto path = begin();
  open(path);
  meetings_.came({among_all, 7, 0}, 2, contribution({Operation::Barrier, 0, 0, 0, {}, false}), out_);
  meetings_.came(path, 1, contribution(), out_);
  meetings_.expire(path, "5 s", {}, out_);
  expect_done(path, Code::Timeout, "member 2 did not come in 5 s (member 2 came to barrier(), number 7)");
  EXPECT_EQ(out_.tell.size(), 1u);
}

TEST_F(MeetingsTest, WhoIsInAnotherGroupInsteadIsNamedWithThat) {
  const auto path = begin();
  open(path);
  meetings_.expire(path, "5 s", {{2, "barrier(), number 0 of group {0, 2}"}}, out_);
  expect_done(path, Code::Timeout,
              "member 1, member 2 did not come in 5 s (member 2 came to barrier(), number 0 of group {0, 2})");
}

TEST_F(MeetingsTest, ALostMemberEndsWhatAllTakePartInAndWhatWaitsForItAlone) {
  const auto all = begin();
  const auto mine = begin(from_1_to_0);
  const auto others = begin(from_2_to_0);
  meetings_.came(all, 1, contribution(), out_);
  open(all);
  open(mine, {1});
  open(others, {2});
  meetings_.lost(1, {Code::PeerLost, "it died"}, out_);
  ASSERT_EQ(out_.done.size(), 2u);  // Of what goes on with the other one only, it is no concern.
  for (const auto& done : out_.done) EXPECT_EQ(done.status.code(), Code::PeerLost);
  EXPECT_EQ(out_.done[0].path, all);
  EXPECT_EQ(out_.done[1].path, mine);
}

TEST_F(MeetingsTest, WhatBeginsAfterALossEndsAtOnceUnlessEverythingHadCome) {
  const auto first = begin(from_1_to_0);
  meetings_.came(first, 1, contribution(), out_);
  meetings_.lost(1, {Code::PeerLost, "it died"}, out_);
  open(first, {1});
  expect_done(first, Code::Ok);
  out_ = {};
  const auto second = begin(from_1_to_0);
  open(second, {1});
  expect_done(second, Code::PeerLost, "member 1 is lost (it died)");
  out_ = {};
  // To give it something is of no use either, though one would not wait for it.
  const auto gift = begin(from_0_to_1);
  meetings_.open(gift, {}, {1}, reduction(), out_);
  expect_done(gift, Code::PeerLost);
}

TEST_F(MeetingsTest, BackwardsCountWhoHasEndedAsZero) {
  const auto path = begin();
  open(path);
  meetings_.came(path, 1, contribution(), out_);
  meetings_.came(path, 2, contribution(), out_);
  out_ = {};
  const auto backward = [&](uint64_t which) {
    auto at = path;
    at.push_back(which);
    return at;
  };
  meetings_.ended(path, 2, 1, out_);  // Takes part in the first, and in no other.
  open(backward(0));
  meetings_.came(backward(0), 1, contribution(), out_);
  EXPECT_TRUE(out_.done.empty());
  meetings_.came(backward(0), 2, contribution(), out_);
  expect_done(backward(0), Code::Ok);
  out_ = {};
  open(backward(1));
  EXPECT_TRUE(out_.done.empty());
  meetings_.ended(path, 1, 1, out_);
  expect_done(backward(1), Code::Ok);
  EXPECT_TRUE(out_.done[0].came.empty());
}

TEST_F(MeetingsTest, WhatComesTooLateIsNotKept) {
  const auto path = begin();
  open(path);
  meetings_.expire(path, "1 s", {}, out_);
  meetings_.came(path, 1, contribution(), out_);
  meetings_.end(path);
  meetings_.end({path[0], path[1]});
  meetings_.came(path, 2, contribution(), out_);
  auto backward = path;
  backward.push_back(0);
  meetings_.came(backward, 2, contribution(), out_);
  meetings_.ended(path, 2, 0, out_);
  EXPECT_EQ(meetings_.kept(), 0u);
}

TEST_F(MeetingsTest, WhatIsAbandonedIsSilent) {
  const auto path = begin();
  open(path);
  meetings_.abandon(path);
  meetings_.came(path, 1, contribution(), out_);
  meetings_.came(path, 2, contribution(), out_);
  EXPECT_TRUE(out_.done.empty());
  EXPECT_TRUE(out_.tell.empty());
}

TEST_F(MeetingsTest, AllThatWaitHearOfTheClosing) {
  const auto one = begin();
  const auto other = begin(from_1_to_0);
  open(one);
  open(other, {1});
  meetings_.close({Code::Closed, "closed"}, out_);
  EXPECT_EQ(out_.done.size(), 2u);
  out_ = {};
  const auto late = begin();
  open(late);
  expect_done(late, Code::Closed);
}

// All members call the same operations, and letters between them are delivered in an order that the seed decides: every
// meeting is over at every member with everybody's contribution, and nothing is left.
TEST(Meetings, AnyOrderOfLettersWillDo) {
  test::for_each_seed(300, [](uint64_t seed) {
    std::mt19937_64 random(seed);
    const int size = 2 + static_cast<int>(seed % 4);
    constexpr int operations = 4;
    struct Post {
      int from, to;
      Path path;
    };
    std::vector<Post> posts;
    std::vector<Meetings> members;
    for (int i = 0; i < size; ++i) members.emplace_back(i, [](int m) { return std::to_string(m); }, "the group");
    std::vector<int> next(static_cast<size_t>(size)), over(static_cast<size_t>(size));
    const auto pick = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
    const auto count = [&](int member, Effects& effects) {
      EXPECT_TRUE(effects.tell.empty());
      for (const auto& done : effects.done) {
        EXPECT_TRUE(done.status.ok()) << done.status.message();
        EXPECT_EQ(done.came.size(), static_cast<size_t>(size) - 1);
        ++over[static_cast<size_t>(member)];
        members[static_cast<size_t>(member)].end(done.path);
        members[static_cast<size_t>(member)].end({done.path[0], done.path[1]});
      }
    };
    const auto all_began = [&] { return std::ranges::all_of(next, [](int n) { return n == operations; }); };
    for (int step = 0; step < 10'000 && !(all_began() && posts.empty()); ++step) {
      const auto turn = pick(static_cast<size_t>(size) + posts.size());
      Effects effects;
      if (turn < static_cast<size_t>(size)) {
        const auto member = static_cast<int>(turn);
        if (next[turn]++ >= operations) {
          next[turn] = operations;
          continue;
        }
        auto path = members[turn].begin(among_all);
        path.push_back(0);
        members[turn].begin(path);
        std::vector<int> others;
        for (int i = 0; i < size; ++i) {
          if (i != member) others.push_back(i);
        }
        for (const int other : others) posts.push_back({member, other, path});
        members[turn].open(path, others, others, reduction(), effects);
        count(member, effects);
      } else {
        std::swap(posts[turn - static_cast<size_t>(size)], posts.back());
        const auto post = posts.back();
        posts.pop_back();
        members[static_cast<size_t>(post.to)].came(post.path, post.from, contribution(), effects);
        count(post.to, effects);
      }
    }
    for (int i = 0; i < size; ++i) {
      EXPECT_EQ(over[static_cast<size_t>(i)], operations);
      EXPECT_EQ(members[static_cast<size_t>(i)].kept(), 0u);
    }
  });
}

}  // namespace
}  // namespace farad::collectives
