#include "net/rendezvous/roster.h"

#include <gtest/gtest.h>

#include "unit/net/rendezvous_support.h"

namespace farad::net {
namespace {

using test::member;

TEST(RendezvousRoster, NamesTheMissingAndThoseWhoLeft) {
  Roster roster;
  bool rejoined = false;
  const auto second = member(1, "trainer");
  ASSERT_TRUE(roster.admit(member(0), 4, rejoined).ok());
  ASSERT_TRUE(roster.admit(second, 4, rejoined).ok());
  roster.leave(second.rank, second.birth);
  EXPECT_EQ(roster.missing(), "rank 1 (\"trainer\", which came and left), rank 2, rank 3");
}

TEST(RendezvousRoster, NamesNoMoreMissingThanOneReads) {
  Roster roster;
  bool rejoined = false;
  ASSERT_TRUE(roster.admit(member(0), 1000, rejoined).ok());
  EXPECT_NE(roster.missing().find("rank 16 and 983 more"), std::string::npos) << roster.missing();
}

TEST(RendezvousRoster, TheEndOfAFormerLifeDoesNotUnseatTheNextOne) {
  Roster roster;
  bool rejoined = false;
  const auto former = member(0);
  ASSERT_TRUE(roster.admit(former, 1, rejoined).ok());
  roster.leave(former.rank, former.birth);
  ASSERT_TRUE(roster.admit(member(0), 1, rejoined).ok());
  roster.leave(former.rank, former.birth);
  EXPECT_TRUE(roster.full());
}

TEST(RendezvousRoster, ComingTwiceInOneLifeIsNotARejoin) {
  Roster roster;
  bool rejoined = true;
  const auto self = member(0);
  ASSERT_TRUE(roster.admit(self, 1, rejoined).ok());
  roster.seal();
  ASSERT_TRUE(roster.admit(self, 1, rejoined).ok());
  EXPECT_FALSE(rejoined);
  EXPECT_EQ(roster.rival(self), nullptr);
}

TEST(RendezvousRoster, ASpoiltMeetingRefusesTheInnocentWithTheSameWords) {
  Roster roster;
  bool rejoined = false;
  ASSERT_TRUE(roster.admit(member(0), 2, rejoined).ok());
  const auto wrong = roster.admit(member(1), 3, rejoined);
  EXPECT_EQ(wrong.code(), base::Code::Invalid);
  EXPECT_EQ(roster.admit(member(1), 2, rejoined).message(), wrong.message());
}

TEST(RendezvousRoster, ImpossibleSizesAreRefused) {
  for (int size : {-1, 0, 65537}) {
    Roster roster;
    bool rejoined = false;
    EXPECT_EQ(roster.admit(member(0), size, rejoined).code(), base::Code::Invalid) << size;
  }
}

TEST(RendezvousRoster, ACompleteGroupTakesNobodyNew) {
  Roster roster;
  bool rejoined = false;
  const auto first = member(0), second = member(1);
  ASSERT_TRUE(roster.admit(first, 2, rejoined).ok());
  ASSERT_TRUE(roster.admit(second, 2, rejoined).ok());
  roster.seal();
  roster.leave(second.rank, second.birth);
  EXPECT_EQ(roster.admit(member(1, "stranger"), 2, rejoined).code(), base::Code::Invalid);
  EXPECT_TRUE(roster.failure().ok()) << "the others have done nothing wrong";
  EXPECT_TRUE(roster.admit(member(1), 2, rejoined).ok());
  EXPECT_TRUE(rejoined);
}

}  // namespace
}  // namespace farad::net
