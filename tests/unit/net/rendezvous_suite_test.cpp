// What every kind of rendezvous promises.
#include <gtest/gtest.h>

#include <cstdio>

#include "unit/net/rendezvous_support.h"

namespace farad::net::test {
namespace {

using base::Code;

class RendezvousSuite : public ::testing::TestWithParam<const char*> {
 protected:
  RendezvousSuite() {
    const std::string kind = GetParam();
    if (kind == "tcp") url_ = "tcp://127.0.0.1:" + std::to_string(free_port());
    if (kind == "file") url_ = "file://" + directory_.file("meeting");
    if (kind == "local")
      url_ = "local://" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name());
  }

  std::unique_ptr<Joiner> start(Member self, int size, Joiner::Options options = {}) {
    return std::make_unique<Joiner>(url_, std::move(self), size, options);
  }

  TemporaryDirectory directory_;
  std::string url_;
};

TEST_P(RendezvousSuite, AllLearnOfAllByRank) {
  auto joiners = start_group(url_, 5);
  for (auto& joiner : joiners) {
    ASSERT_TRUE(joiner->status().ok()) << joiner->status().message();
    EXPECT_FALSE(joiner->rejoined());
    ASSERT_EQ(joiner->members().size(), 5u);
    for (int rank = 0; rank < 5; ++rank) {
      const Member& known = joiner->members()[rank];
      EXPECT_EQ(known.rank.value, rank);
      EXPECT_EQ(known.name, joiners[rank]->self().name);
      EXPECT_EQ(known.birth, joiners[rank]->self().birth);
      EXPECT_EQ(known.addresses, joiners[rank]->self().addresses);
      EXPECT_EQ(known.machine, joiners[rank]->self().machine);
    }
  }
}

TEST_P(RendezvousSuite, AGroupOfOneDoesNotWait) { EXPECT_TRUE(start(member(0), 1)->status().ok()); }

TEST_P(RendezvousSuite, ThirtyTwoAreTogetherWithinASecondOfTheLastCall) {
  // Rank 0, which the others may depend on, comes last.
  constexpr int size = 32;
  Joiners joiners;
  for (int rank = size - 1; rank >= 0; --rank) joiners.push_back(start(member(rank), size));
  const auto last_call = base::Clock::now();
  for (auto& joiner : joiners) ASSERT_TRUE(joiner->status().ok()) << joiner->status().message();
  const auto took = std::chrono::duration<double, std::milli>(base::Clock::now() - last_call).count();
  std::printf("%s: %d members together %.1f ms after the last join\n", GetParam(), size, took);
  RecordProperty("milliseconds", std::to_string(took));
  EXPECT_LT(took, 3 * 1000.0);
}

TEST_P(RendezvousSuite, ASharedSecretLetsAllIn) {
  for (auto& joiner : start_group(url_, 3, {.secret = "open sesame"}))
    EXPECT_TRUE(joiner->status().ok()) << joiner->status().message();
}

TEST_P(RendezvousSuite, AWrongSecretIsDenied) {
  auto joiners = start_group(url_, 2, {.secret = "right"});
  for (auto& joiner : joiners) ASSERT_TRUE(joiner->status().ok()) << joiner->status().message();
  joiners[1]->close();
  expect_failure(*start(member(1), 2, {.secret = "wrong"}), Code::Denied, {});
  expect_failure(*start(member(1), 2, {.secret = ""}), Code::Denied, {});
  EXPECT_TRUE(start(member(1), 2, {.secret = "right"})->status().ok());
}

TEST_P(RendezvousSuite, TheMissingAreNamed) {
  auto first = start(member(0), 4, {.timeout = 400ms});
  auto third = start(member(2), 4, {.timeout = 400ms});
  expect_failure(*first, Code::Timeout, {"missing: ", "rank 1", "rank 3"});
  expect_failure(*third, Code::Timeout, {"missing: ", "rank 1", "rank 3"});
}

TEST_P(RendezvousSuite, WhoGaveUpWaitingIsNamedAsMissing) {
  auto first = start(member(0), 3, {.timeout = 1500ms});
  auto second = start(member(1, "trainer"), 3, {.timeout = 500ms});
  expect_failure(*second, Code::Timeout, {"rank 2"});
  expect_failure(*first, Code::Timeout, {"rank 1 (\"trainer\", which came and left), rank 2"});
}

TEST_P(RendezvousSuite, WhoEndedWhileWaitingCanBeStartedAgain) {
  auto first = start(member(0), 3);
  auto second = start(member(1), 3, {.timeout = 300ms});
  expect_failure(*second, Code::Timeout, {"rank 2"});
  auto again = start(member(1), 3);
  auto third = start(member(2), 3);
  ASSERT_TRUE(first->status().ok()) << first->status().message();
  ASSERT_TRUE(again->status().ok()) << again->status().message();
  ASSERT_TRUE(third->status().ok()) << third->status().message();
  EXPECT_FALSE(again->rejoined()) << "there was no group yet";
  EXPECT_EQ(first->members()[1].birth, again->self().birth);
}

TEST_P(RendezvousSuite, ADuplicateNameFailsOnAll) {
  Joiners joiners;
  for (auto& self : {member(0, "a"), member(1, "b"), member(2, "b")}) joiners.push_back(start(self, 3));
  for (auto& joiner : joiners)
    expect_failure(*joiner, Code::Invalid, {"the name \"b\" is taken twice", "rank 1", "rank 2"});
}

TEST_P(RendezvousSuite, ADuplicateRankFailsOnAll) {
  Joiners joiners;
  for (auto& self : {member(0, "a"), member(1, "b"), member(1, "c")}) joiners.push_back(start(self, 3));
  for (auto& joiner : joiners) expect_failure(*joiner, Code::Invalid, {"rank 1 is taken twice", "\"b\"", "\"c\""});
}

TEST_P(RendezvousSuite, ADuplicateRankWithTheSameNameFailsOnAll) {
  Joiners joiners;
  for (int rank : {0, 1, 1}) joiners.push_back(start(member(rank), 3));
  for (auto& joiner : joiners) expect_failure(*joiner, Code::Invalid, {"rank 1 is taken twice", "\"worker1\""});
}

TEST_P(RendezvousSuite, AWrongSizeFailsOnAll) {
  Joiners joiners;
  joiners.push_back(start(member(0), 3));
  joiners.push_back(start(member(1), 3));
  joiners.push_back(start(member(2), 4));
  for (auto& joiner : joiners)
    expect_failure(*joiner, Code::Invalid, {"\"worker2\" (rank 2)", "give all the same size"});
}

TEST_P(RendezvousSuite, ARankOutOfRangeFailsOnAll) {
  Joiners joiners;
  joiners.push_back(start(member(0), 3));
  joiners.push_back(start(member(1), 3));
  joiners.push_back(start(member(3), 3));
  for (auto& joiner : joiners)
    expect_failure(*joiner, Code::Invalid, {"\"worker3\" (rank 3) has a rank out of range", "0 to 2"});
}

TEST_P(RendezvousSuite, ARestartedWorkerFindsTheGroupAndReplacesItsRecord) {
  auto joiners = start_group(url_, 3);
  for (auto& joiner : joiners) ASSERT_TRUE(joiner->status().ok()) << joiner->status().message();

  joiners[1]->close();
  auto second = start(member(1), 3);
  ASSERT_TRUE(second->status().ok()) << second->status().message();
  EXPECT_TRUE(second->rejoined());
  ASSERT_EQ(second->members().size(), 3u);
  EXPECT_EQ(second->members()[2].birth, joiners[2]->self().birth);

  joiners[2]->close();
  auto third = start(member(2), 3);
  ASSERT_TRUE(third->status().ok()) << third->status().message();
  EXPECT_EQ(third->members()[1].birth, second->self().birth);
}

TEST_P(RendezvousSuite, ACompleteGroupRefusesStrangersAlone) {
  auto joiners = start_group(url_, 2);
  for (auto& joiner : joiners) ASSERT_TRUE(joiner->status().ok()) << joiner->status().message();
  expect_failure(*start(member(1, "stranger"), 2), Code::Invalid, {"rank 1 is taken twice", "\"stranger\""});
  expect_failure(*start(member(2), 3), Code::Invalid, {"group of 3"});

  joiners[1]->close();
  EXPECT_TRUE(start(member(1), 2)->status().ok()) << "the group must have come to no harm";
}

TEST_P(RendezvousSuite, ClosingEndsTheWait) {
  auto waiting = start(member(0), 2, {.timeout = 1h});
  waiting->close();
  expect_failure(*waiting, Code::Closed, {"\"worker0\" (rank 0)"});
  waiting->close();  // Twice is fine.
}

TEST_P(RendezvousSuite, ThePlaceCanBeUsedAgain) {
  for (int job = 0; job < 3; ++job) {
    auto joiners = start_group(url_, 3);
    for (auto& joiner : joiners) ASSERT_TRUE(joiner->status().ok()) << joiner->status().message();
    for (auto& joiner : joiners) EXPECT_FALSE(joiner->rejoined());
    for (auto& joiner : joiners) joiner->close();
  }
  EXPECT_TRUE(directory_.empty()) << "nothing is left behind";
}

INSTANTIATE_TEST_SUITE_P(Kinds, RendezvousSuite, ::testing::Values("tcp", "file", "local"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace farad::net::test
