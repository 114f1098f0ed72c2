// What comes for groups that were not made yet. Worker 0 is under test.

#include "collectives/early_letters.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace farad::collectives {
namespace {

using Fate = EarlyLetters::Fate;
using testing::HasSubstr;

constexpr base::Rank self(0), one(1), two(2);
constexpr size_t most_bytes = 10'000;

const GroupId pair_of_one{0, {0, 1}}, all{0, {2, 0, 1}};

Letter letter_of(const GroupId& group, uint64_t number = 0, int64_t bytes = 0) {
  Letter letter;
  letter.group = group;
  letter.path = {0, number, 0};
  letter.contribution.signature.operation = Operation::AllGather;
  if (bytes > 0) letter.contribution.tensor = at::zeros({bytes}, at::kByte);
  return letter;
}

class EarlyLettersTest : public testing::Test {
 protected:
  Fate keep(base::Rank from, Letter letter) { return early_.keep({from, base::Incarnation(1)}, letter); }

  EarlyLetters early_{self, most_bytes};
};

TEST_F(EarlyLettersTest, AreThoseOfTheirGroupInTheOrderInWhichTheyCame) {
  EXPECT_EQ(keep(one, letter_of(all, 5)), Fate::Kept);
  EXPECT_EQ(keep(one, letter_of(pair_of_one, 6)), Fate::Kept);
  EXPECT_EQ(keep(two, letter_of(all, 7)), Fate::Kept);
  const auto letters = early_.take(all);
  ASSERT_EQ(letters.size(), 2u);
  EXPECT_EQ(letters[0].first.rank, one);
  EXPECT_EQ(letters[0].second.path[1], 5u);
  EXPECT_EQ(letters[1].first.rank, two);
  EXPECT_TRUE(early_.take(all).empty());
  EXPECT_THAT(early_.heard_of(one), HasSubstr("all_gather(), number 6 of a group {0, 1} that was not made here"));
  EXPECT_EQ(early_.heard_of(two), "");
}

TEST_F(EarlyLettersTest, OfGroupsWithoutTheSenderOrThisWorkerAreNotKept) {
  EXPECT_EQ(keep(two, letter_of(pair_of_one)), Fate::Foreign);
  EXPECT_EQ(keep(one, letter_of({0, {1, 2}})), Fate::Foreign);
  EXPECT_EQ(keep(one, letter_of({0, {}})), Fate::Foreign);
  EXPECT_TRUE(early_.take(pair_of_one).empty());
  EXPECT_EQ(early_.heard_of(one), "");
}

TEST_F(EarlyLettersTest, OfASenderThatSendsTooMuchAreNotKeptAnyMore) {
  EXPECT_EQ(keep(one, letter_of(all, 0, 6000)), Fate::Kept);
  EXPECT_FALSE(early_.has_overrun(one));
  EXPECT_EQ(keep(one, letter_of(pair_of_one, 0, 6000)), Fate::TooMuch) << "in whatever group";
  EXPECT_TRUE(early_.has_overrun(one));
  EXPECT_EQ(keep(one, letter_of(all, 1)), Fate::TooMuch) << "one is missing, so those after it are of no use";
  EXPECT_EQ(keep(two, letter_of(all, 0, 6000)), Fate::Kept) << "others are not concerned";
  EXPECT_FALSE(early_.has_overrun(two));
  early_.forgive(one);
  EXPECT_EQ(keep(one, letter_of(all, 2)), Fate::Kept);
}

TEST_F(EarlyLettersTest, OfItsNextLifeHaveRoomOfTheirOwn) {
  EXPECT_EQ(keep(one, letter_of(all, 0, 6000)), Fate::Kept);
  EXPECT_EQ(keep(one, letter_of(all, 1, 6000)), Fate::TooMuch);
  early_.forgive(one);
  auto letter = letter_of(all, 0, 6000);
  EXPECT_EQ(early_.keep({one, base::Incarnation(7)}, letter), Fate::Kept);
}

TEST_F(EarlyLettersTest, OneIsKeptHoweverLargeItIs) {
  EXPECT_EQ(keep(one, letter_of(all, 0, 100'000)), Fate::Kept);
  EXPECT_EQ(keep(one, letter_of(all, 1)), Fate::TooMuch);
}

TEST_F(EarlyLettersTest, WithoutTensorsAreTooMuchAtSomeTimeToo) {
  uint64_t number = 0;
  while (number < most_bytes && keep(one, letter_of({number, {0, 1}})) == Fate::Kept) ++number;
  EXPECT_GT(number, 2u);
  EXPECT_LT(number, most_bytes);
  EXPECT_TRUE(early_.has_overrun(one));
}

TEST_F(EarlyLettersTest, LeaveRoomForOthersWhenTheyAreTaken) {
  for (uint64_t number = 0; number < 10; ++number) {
    EXPECT_EQ(keep(one, letter_of({number, {0, 1}}, 0, 6000)), Fate::Kept);
    EXPECT_EQ(early_.take({number, {0, 1}}).size(), 1u);
  }
  EXPECT_EQ(keep(one, letter_of(all, 0, 6000)), Fate::Kept);
  early_.clear();
  EXPECT_EQ(keep(one, letter_of(all, 0, 6000)), Fate::Kept);
}

}  // namespace
}  // namespace farad::collectives
