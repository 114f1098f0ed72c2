// How a pass ends when something goes wrong: one worker's Passes, the others played by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_desk.h"

namespace farad::autograd::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const PassId of_zero{base::Rank(0), 1};

/// Waits for an answer of worker 2.
Shape waiting() {
  Shape shape;
  shape.send(2, 2, {{shape.node(Role::Leaf)}});
  return shape;
}

/// Worker 1, done with a pass of worker 0.
struct DoneDesk : Desk {
  DoneDesk() : Desk(1) {
    start(of_zero, 0, Shape().snapshot({}, {0, 2}));
    forget();
  }
};

PassMessage over(const Desk& desk, Verdict verdict, uint64_t number = 0) {
  auto answer = desk.message(PassKind::Over, of_zero);
  answer.verdict = verdict;
  answer.number = number;
  return answer;
}

TEST(PassEndings, ANodeThatFailsAbortsAtAllNeighboursAndTheRoot) {
  Desk desk(1);
  desk.start(of_zero, 3, waiting().snapshot());
  desk.passes.fail(of_zero, {base::Code::RemoteError, rank(1), "MulBackward0 threw"}, desk.out);
  EXPECT_THAT(desk.sent(PassKind::Abort), ElementsAre(0, 2, 3));
  EXPECT_EQ(desk.first(PassKind::Abort)->failure.what, "MulBackward0 threw");
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_EQ(desk.passes.next_ready(of_zero), no_node);
}

TEST(PassEndings, AbortTravelsOn) {
  Desk desk(1);
  desk.start(of_zero, 0, waiting().snapshot({}, {3}));
  desk.hear(3, PassKind::Abort, of_zero);
  EXPECT_THAT(desk.sent(PassKind::Abort), ElementsAre(0, 2));
}

TEST(PassEndings, WhatComesTooLateStartsNothingAndIsToldSo) {
  Desk desk(1);
  desk.hear(3, PassKind::Abort, of_zero);  // It has overtaken START.
  desk.hear(0, PassKind::Start, of_zero);
  EXPECT_THAT(desk.out.scans, IsEmpty());
  ASSERT_THAT(desk.sent(PassKind::Over), ElementsAre(0));
  EXPECT_EQ(desk.first(PassKind::Over)->verdict, Verdict::Dropped);
}

TEST(PassEndings, ACommittedPassDoesNotBeginAgain) {
  DoneDesk desk;
  desk.hear(0, PassKind::Commit, of_zero);
  desk.hear(2, PassKind::Start, of_zero);
  EXPECT_THAT(desk.out.scans, IsEmpty());
  EXPECT_EQ(desk.passes.active(), 0U);
}

/// Its root was restarted since, or has given the context up and met it again, and counts from one again.
TEST(PassEndings, APassOfAnotherLifeOfItsRootIsAnotherPass) {
  DoneDesk desk;
  desk.hear(0, PassKind::Commit, of_zero);
  const PassId again{rank(0), of_zero.number, 1};
  desk.start(again, 0, Shape().snapshot({}, {0, 2}));
  EXPECT_EQ(desk.out.scans.size(), 1U);
  ASSERT_THAT(desk.sent(PassKind::Done), ElementsAre(0));
  EXPECT_EQ(desk.first(PassKind::Done)->pass, again);
}

TEST(PassEndings, TheContextCanBeUsedAgain) {
  Desk desk(0);
  const auto first = desk.passes.begin(false, {}, desk.out);
  desk.passes.fail(first, {base::Code::Timeout, rank(0), "no result in 5 s"}, desk.out);
  EXPECT_EQ(desk.out.endings.at(0).failure.code, base::Code::Timeout);
  const auto second = desk.passes.begin(false, {}, desk.out);
  EXPECT_NE(first, second);
  desk.passes.scanned(first, Shape().snapshot(), desk.out);  // late, and ignored
  desk.passes.scanned(second, Shape().snapshot(), desk.out);
  ASSERT_EQ(desk.out.endings.size(), 2U);
  EXPECT_TRUE(desk.out.endings[1].committed);
}

TEST(PassEndings, APeerLostDuringThePassAbortsItByName) {
  Desk desk(1);
  desk.start(of_zero, 0, waiting().snapshot());
  desk.passes.on_lost(rank(3), desk.out);  // not ours
  EXPECT_THAT(desk.out.endings, IsEmpty());
  desk.passes.on_lost(rank(2), desk.out);
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_EQ(desk.out.endings[0].failure.culprit, rank(2));
  EXPECT_THAT(desk.out.endings[0].failure.what, HasSubstr("it was lost"));
}

TEST(PassEndings, APeerLostWhileTheSnapshotIsScannedAbortsIt) {
  Desk desk(1);
  desk.hear(0, PassKind::Start, of_zero);
  desk.passes.on_lost(rank(2), desk.out);
  desk.passes.scanned(of_zero, waiting().snapshot(), desk.out);
  EXPECT_EQ(desk.out.endings.size(), 1U);
  EXPECT_THAT(desk.sent(PassKind::Start), IsEmpty());
}

/// Worker 1 has forgotten what it sent, because its connection to worker 2 broke; that one has a gradient for it.
TEST(PassEndings, AGradientForWhatOneThatIsDoneHasForgottenIsLeftToTheRoot) {
  DoneDesk desk;
  desk.hear(2, desk.grads(of_zero, 5, {TensorState::Tensor}));
  EXPECT_THAT(desk.out.endings, IsEmpty()) << "the root may have committed";
  ASSERT_THAT(desk.sent(PassKind::Fail), ElementsAre(0));
  EXPECT_THAT(desk.first(PassKind::Fail)->failure.what, HasSubstr("call 5"));
}

TEST(PassEndings, TheRootDoesNotCommitWhereMoreGradientsWereSentThanTaken) {
  for (const bool taken : {true, false}) {
    Desk desk(0);
    const auto pass = desk.passes.begin(false, {}, desk.out);
    desk.passes.scanned(pass, Shape().snapshot({}, {1, 2}), desk.out);
    auto one = desk.message(PassKind::Done, pass), two = one;
    one.peers = two.peers = {rank(0), rank(1), rank(2)};
    one.channels = {{rank(2), 0, taken ? 1U : 0U}};
    two.channels = {{rank(1), 1, 0}};
    desk.hear(2, two);
    desk.hear(1, one);
    ASSERT_EQ(desk.out.endings.size(), 1U);
    EXPECT_EQ(desk.out.endings[0].committed, taken);
    if (taken) continue;
    EXPECT_EQ(desk.out.endings[0].failure.code, base::Code::PeerLost);
    EXPECT_THAT(desk.sent(PassKind::Abort), ElementsAre(1, 2));
  }
}

TEST(PassEndings, OneThatIsDoneAsksTheRootToAbort) {
  DoneDesk desk;
  desk.passes.on_lost(rank(2), desk.out);
  EXPECT_THAT(desk.out.endings, IsEmpty()) << "the root may have committed";
  EXPECT_THAT(desk.sent(PassKind::Fail), ElementsAre(0));
}

/// It may never have had to do with the orphan, and wait for it.
TEST(PassEndings, OneThatIsDoneTellsTheRootOfAnOrphan) {
  DoneDesk desk;
  auto ask = desk.message(PassKind::Ask, of_zero);
  ask.orphaned = true;
  desk.hear(2, ask);
  EXPECT_THAT(desk.sent(PassKind::Over), IsEmpty()) << "the root may have committed";
  ASSERT_THAT(desk.sent(PassKind::Fail), ElementsAre(0));
  EXPECT_EQ(desk.first(PassKind::Fail)->failure.culprit, rank(2));
}

TEST(PassEndings, AnOrphanAsksEverybodyAndCommitsIfOneHasSeenCommit) {
  DoneDesk desk;
  desk.passes.on_lost(rank(0), desk.out);
  EXPECT_THAT(desk.sent(PassKind::Ask), ElementsAre(0, 2, 3));
  desk.hear(3, over(desk, Verdict::Undecided));
  desk.hear(2, over(desk, Verdict::Committed));
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_TRUE(desk.out.endings[0].committed);
}

TEST(PassEndings, AnOrphanDropsThePassIfNobodyHasSeenCommit) {
  DoneDesk desk;
  desk.passes.on_lost(rank(0), desk.out);
  desk.hear(3, over(desk, Verdict::Undecided));
  desk.hear(2, over(desk, Verdict::Undecided));
  EXPECT_THAT(desk.out.endings, IsEmpty());
  desk.passes.on_lost(rank(0), desk.out);  // the question got nowhere
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_EQ(desk.out.endings[0].failure.culprit, rank(0));
}

TEST(PassEndings, OneThatMayYetHearFromTheRootLetsAnOrphanWait) {
  DoneDesk desk;
  auto ask = desk.message(PassKind::Ask, of_zero);
  ask.orphaned = true;
  desk.hear(3, ask);
  EXPECT_THAT(desk.sent(PassKind::Over), IsEmpty());
  desk.hear(0, PassKind::Commit, of_zero);
  ASSERT_THAT(desk.sent(PassKind::Over), ElementsAre(3));
  EXPECT_EQ(desk.first(PassKind::Over)->verdict, Verdict::Committed);
}

TEST(PassEndings, AWorkerLostBeforeIsLeftOut) {
  Desk desk(1);
  Shape shape;
  const auto recv = shape.recv(1, 2);
  shape.send(2, 2, {{recv}});
  shape.unreached(3, 2);
  desk.start(of_zero, 0, shape.snapshot({}, {0}, {2}));
  EXPECT_THAT(desk.out.endings, IsEmpty());
  EXPECT_THAT(desk.sent(PassKind::Start), IsEmpty());
  EXPECT_THAT(desk.sent(PassKind::Grads), IsEmpty());
  ASSERT_THAT(desk.sent(PassKind::Done), ElementsAre(0));
  EXPECT_EQ(desk.first(PassKind::Done)->left_out, std::vector{rank(2)});
}

TEST(PassEndings, AGradientForAWorkerLostBeforeAbortsByName) {
  Desk desk(0);
  Shape shape;
  const auto recv = shape.recv(1, 2);
  const auto pass = desk.passes.begin(false, {}, desk.out);
  desk.passes.scanned(pass, shape.snapshot({{recv, 0}}, {1}, {2}), desk.out);
  desk.run(pass);
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_EQ(desk.out.endings[0].failure.culprit, rank(2));
  EXPECT_THAT(desk.out.endings[0].failure.what, HasSubstr("call 1"));
}

TEST(PassEndings, AWorkerThatDidItsPartAndWasLostBeforeAnotherBeganIsNotLeftOutInSilence) {
  Desk desk(0);
  const auto pass = desk.passes.begin(false, {}, desk.out);
  desk.passes.scanned(pass, Shape().snapshot({}, {1, 2}), desk.out);
  auto done = desk.message(PassKind::Done, pass);
  done.peers = {rank(0), rank(1)};
  desk.hear(2, done);
  done.peers = {rank(0)};
  done.left_out = {rank(2)};
  desk.hear(1, done);
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_FALSE(desk.out.endings[0].committed);
  EXPECT_EQ(desk.out.endings[0].failure.culprit, rank(2));
}

TEST(PassEndings, WhoReadsGradientsOfAnUndecidedPassAsksTheRoot) {
  DoneDesk desk;
  desk.passes.read(41, desk.out);
  desk.passes.read(42, desk.out);
  EXPECT_THAT(desk.sent(PassKind::Ask), ElementsAre(0, 0));
  EXPECT_THAT(desk.out.readers, IsEmpty());
  desk.hear(0, over(desk, Verdict::Undecided, 41));
  EXPECT_THAT(desk.out.readers, ElementsAre(41)) << "an answer says nothing to who asked later";
  desk.hear(0, over(desk, Verdict::Committed, 42));
  EXPECT_THAT(desk.out.readers, ElementsAre(41, 42));
  EXPECT_EQ(desk.out.endings.size(), 1U);
}

TEST(PassEndings, WhoReadsWhenNothingIsUndecidedNeedNotWait) {
  Desk desk(1);
  desk.start(of_zero, 0, waiting().snapshot());
  desk.passes.read(41, desk.out);
  EXPECT_THAT(desk.out.readers, ElementsAre(41));
}

TEST(PassEndings, AReleasedContextFailsWhatStillRunsAndAnswersWhatComesLater) {
  Desk desk(1);
  desk.start(of_zero, 0, waiting().snapshot());
  desk.passes.close(desk.out);
  EXPECT_THAT(desk.sent(PassKind::Abort), ElementsAre(0, 2));
  EXPECT_EQ(desk.out.endings.size(), 1U);
  PassMessage answer;
  ASSERT_TRUE(Passes::answer_released(rank(1), desk.message(PassKind::Start, of_zero), answer));
  EXPECT_EQ(answer.verdict, Verdict::Dropped);
  EXPECT_FALSE(Passes::answer_released(rank(1), desk.message(PassKind::Commit, of_zero), answer));
}

}  // namespace
}  // namespace farad::autograd::test
