// The protocol rule by rule: one worker's Passes, the others played by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_desk.h"

namespace farad::autograd::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr auto tensor = TensorState::Tensor;
const PassId of_zero{base::Rank(0), 1};

/// Worker 1 got a tensor from 0 (pair 1), and sent what it made of it to 2 (pair 2).
struct Middle {
  Middle() {
    recv = shape.recv(1, 0);
    function = shape.node(Role::Function, {{recv}});
    send = shape.send(2, 2, {{function}});
  }
  Shape shape;
  NodeIndex recv, function, send;
};

TEST(PassRules, StartGoesToAllPeersButTheOneItCameFrom) {
  Desk desk(1);
  desk.start(of_zero, 0, Middle().shape.snapshot({}, {0, 2, 3, 1}));
  EXPECT_THAT(desk.sent(PassKind::Start), ElementsAre(2, 3));
}

TEST(PassRules, TheOptionsTravelWithStart) {
  Desk root(0);
  const auto pass = root.passes.begin(false, {'x', 'y'}, root.out);
  root.passes.scanned(pass, Shape().snapshot({}, {1}), root.out);
  ASSERT_NE(root.first(PassKind::Start), nullptr);
  EXPECT_EQ(root.first(PassKind::Start)->options, "xy");
  Desk other(1);
  other.hear(0, *root.first(PassKind::Start));
  ASSERT_EQ(other.out.scans.size(), 1U);
  EXPECT_EQ(other.out.scans[0].options, "xy");
}

TEST(PassRules, RecvsOutsideThePassAreNulledInOneMessageForEachPeer) {
  Desk desk(1);
  Shape shape;
  shape.unreached(1, 0);
  shape.unreached(2, 0);
  shape.unreached(3, 2);
  desk.start(of_zero, 0, shape.snapshot());
  EXPECT_THAT(desk.sent(PassKind::Grads), UnorderedElementsAre(0, 2));
  EXPECT_EQ(desk.first(PassKind::Grads)->answers.size(), 2U);
  EXPECT_EQ(desk.first(PassKind::Grads)->answers[0].tensors, 0U);
}

TEST(PassRules, AnswersThatComeBeforeStartAreKept) {
  Desk desk(1);
  Middle middle;
  desk.hear(2, desk.grads(of_zero, 2, {tensor}));
  EXPECT_THAT(desk.out.scans, IsEmpty());
  desk.start(of_zero, 0, middle.shape.snapshot());
  EXPECT_THAT(desk.run(of_zero), ElementsAre(middle.send, middle.function, middle.recv));
}

TEST(PassRules, AGradientGoesThroughAndDoneFollowsIt) {
  Desk desk(1);
  Middle middle;
  desk.start(of_zero, 0, middle.shape.snapshot({}, {3}));
  desk.hear(2, desk.grads(of_zero, 2, {tensor}));
  ASSERT_EQ(desk.out.deliveries.size(), 1U);
  EXPECT_EQ(desk.out.deliveries[0].send, middle.send);
  EXPECT_THAT(desk.sent(PassKind::Done), IsEmpty());
  desk.run(of_zero);
  EXPECT_THAT(desk.sent(PassKind::Grads), ElementsAre(0));
  EXPECT_EQ(desk.first(PassKind::Grads)->answers[0].node, middle.recv);
  ASSERT_THAT(desk.sent(PassKind::Done), ElementsAre(0));
  EXPECT_EQ(desk.first(PassKind::Done)->peers, (std::vector{rank(0), rank(2), rank(3)}));
  EXPECT_THAT(desk.out.endings, IsEmpty());
  desk.hear(0, PassKind::Commit, of_zero);
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_TRUE(desk.out.endings[0].committed);
}

TEST(PassRules, ANullIsPassedOnWithoutRunningAnything) {
  Desk desk(1);
  desk.start(of_zero, 0, Middle().shape.snapshot());
  desk.hear(2, desk.grads(of_zero, 2, {}));
  EXPECT_THAT(desk.run(of_zero), IsEmpty());
  EXPECT_EQ(desk.first(PassKind::Grads)->answers[0].tensors, 0U);
  EXPECT_THAT(desk.sent(PassKind::Done), ElementsAre(0));
}

TEST(PassRules, RecvsThatAreReadyTogetherAreAnsweredInOneMessage) {
  Desk desk(1);
  Shape shape;
  const auto first = shape.recv(1, 0), second = shape.recv(2, 0), elsewhere = shape.recv(3, 2);
  const auto function = shape.node(Role::Function, {{first}, {second}, {elsewhere}});
  shape.send(4, 2, {{function}});
  desk.start(of_zero, 0, shape.snapshot());
  desk.hear(2, desk.grads(of_zero, 4, {tensor}));
  desk.run(of_zero);
  EXPECT_THAT(desk.sent(PassKind::Grads), ElementsAre(0, 2));
  EXPECT_EQ(desk.first(PassKind::Grads)->answers.size(), 2U);
}

TEST(PassRules, ANullForACallMadeLaterIsIgnoredAndAGradientForItAborts) {
  Desk desk(1);
  desk.start(of_zero, 0, Middle().shape.snapshot());
  desk.hear(2, desk.grads(of_zero, 77, {}));
  EXPECT_THAT(desk.out.endings, IsEmpty());
  desk.hear(2, desk.grads(of_zero, 77, {tensor}));
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_THAT(desk.out.endings[0].failure.what, HasSubstr("call 77"));
}

TEST(PassRules, ASecondAnswerAborts) {
  Desk desk(1);
  Middle middle;
  desk.start(of_zero, 0, middle.shape.snapshot());
  desk.hear(2, desk.grads(of_zero, 2, {tensor}));
  desk.hear(2, desk.grads(of_zero, 2, {tensor}));
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_EQ(desk.out.endings[0].failure.code, base::Code::Protocol);
}

TEST(PassRules, AnAnswerFromAStrangerOrOfTheWrongSizeAborts) {
  for (const bool stranger : {true, false}) {
    Desk desk(1);
    desk.start(of_zero, 0, Middle().shape.snapshot({}, {3}));
    desk.hear(stranger ? 3 : 2, desk.grads(of_zero, 2, stranger ? std::vector{tensor} : std::vector{tensor, tensor}));
    ASSERT_EQ(desk.out.endings.size(), 1U);
    EXPECT_EQ(desk.out.endings[0].failure.code, base::Code::Protocol);
  }
}

TEST(PassRules, AForwardMessageAfterTheStartIsNulledAtOnceAndItsSenderIsNotNamed) {
  Desk desk(1);
  desk.start(of_zero, 0, Shape().snapshot({}, {0}));
  EXPECT_THAT(desk.sent(PassKind::Done), ElementsAre(0)) << "nothing to do";
  desk.passes.late_recv(pair(9), rank(3), /*gradient=*/false, desk.out);
  EXPECT_THAT(desk.sent(PassKind::Grads), ElementsAre(3)) << "done or not, its sender may wait";
  EXPECT_EQ(desk.first(PassKind::Done)->peers, std::vector{rank(0)});
}

TEST(PassRules, AForwardMessageOfThePassItselfIsNotNulledForIt) {
  Desk desk(1);
  desk.start(of_zero, 0, Middle().shape.snapshot());
  desk.start({rank(0), 2}, 0, Middle().shape.snapshot());
  desk.forget();
  desk.passes.late_recv(pair(9), rank(2), /*gradient=*/false, desk.out, [&](PassId pass) { return pass != of_zero; });
  ASSERT_THAT(desk.sent(PassKind::Grads), ElementsAre(2));
  EXPECT_EQ(desk.first(PassKind::Grads)->pass.number, 2U);
}

TEST(PassRules, ACallThatFailedIsAnsweredByItsSender) {
  Desk desk(1);
  desk.start(of_zero, 0, Middle().shape.snapshot());
  desk.passes.null_send(pair(2), desk.out);
  EXPECT_THAT(desk.sent(PassKind::Done), ElementsAre(0));
  desk.hear(2, desk.grads(of_zero, 2, {}));  // It was received after all, and not used.
  EXPECT_THAT(desk.out.endings, IsEmpty());
}

TEST(PassRules, ACallThatFailsWhileTheSnapshotIsScannedIsAnsweredToo) {
  Desk desk(1);
  desk.hear(0, PassKind::Start, of_zero);
  desk.passes.null_send(pair(2), desk.out);
  desk.passes.scanned(of_zero, Middle().shape.snapshot(), desk.out);
  EXPECT_THAT(desk.sent(PassKind::Done), ElementsAre(0));
}

TEST(PassRules, ACallToOneselfNeedsNoMessage) {
  Desk desk(0);
  Shape shape;
  const auto leaf = shape.node(Role::Leaf);
  const auto send = shape.send(1, 0, {{leaf}});
  const auto recv = shape.recv(1, 0);
  const auto pass = desk.passes.begin(false, {}, desk.out);
  desk.passes.scanned(pass, shape.snapshot({{recv, 0}}, {0}), desk.out);
  EXPECT_THAT(desk.run(pass), ElementsAre(recv, send, leaf));
  ASSERT_EQ(desk.out.hand_overs.size(), 1U);
  EXPECT_EQ(desk.out.hand_overs[0].recv, recv);
  EXPECT_EQ(desk.out.hand_overs[0].send, send);
  EXPECT_THAT(desk.out.messages, IsEmpty());
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_TRUE(desk.out.endings[0].committed);
}

TEST(PassRules, TheRootWaitsForAllThatAnybodyNames) {
  Desk desk(0);
  const auto pass = desk.passes.begin(false, {}, desk.out);
  desk.passes.scanned(pass, Shape().snapshot({}, {1}), desk.out);
  auto done = desk.message(PassKind::Done, pass);
  done.peers = {rank(0), rank(2)};
  desk.hear(1, done);
  EXPECT_THAT(desk.out.endings, IsEmpty());
  done.peers = {rank(1)};
  desk.hear(2, done);
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_TRUE(desk.out.endings[0].committed);
  EXPECT_THAT(desk.sent(PassKind::Commit), ElementsAre(1, 2));
}

TEST(PassRules, PassesOfSeveralRootsRunAtOnceAndDoNotMeet) {
  Desk desk(1);
  Middle middle;
  const PassId of_two{rank(2), 1};
  desk.start(of_zero, 0, middle.shape.snapshot());
  desk.start(of_two, 2, middle.shape.snapshot());
  desk.hear(2, desk.grads(of_zero, 2, {tensor}));
  EXPECT_THAT(desk.run(of_two), IsEmpty());
  EXPECT_EQ(desk.run(of_zero).size(), 3U);
  desk.hear(2, desk.grads(of_two, 2, {}));
  EXPECT_THAT(desk.sent(PassKind::Done), ElementsAre(0, 2));
}

TEST(PassRules, FastNeedsNoStartAndSendsNone) {
  Desk desk(1);
  Middle middle;
  auto grads = desk.grads(of_zero, 2, {tensor});
  grads.fast = grads.opens = true;
  desk.hear(2, grads);
  ASSERT_EQ(desk.out.scans.size(), 1U);
  EXPECT_TRUE(desk.out.scans[0].fast);
  desk.passes.scanned(of_zero, middle.shape.snapshot(), desk.out);
  desk.run(of_zero);
  EXPECT_THAT(desk.sent(PassKind::Start), IsEmpty());
  ASSERT_THAT(desk.sent(PassKind::Grads), ElementsAre(0));
  EXPECT_TRUE(desk.first(PassKind::Grads)->opens);
  ASSERT_THAT(desk.sent(PassKind::Report), ElementsAre(0));
  EXPECT_TRUE(desk.first(PassKind::Report)->complete);
}

TEST(PassRules, FastFailsAtOnceWhereACallIsNotUsedAndNamesIt) {
  Desk desk(0);
  Shape shape;
  const auto leaf = shape.node(Role::Leaf);
  shape.unreached(5, 1);
  const auto pass = desk.passes.begin(true, {}, desk.out);
  desk.passes.scanned(pass, shape.snapshot({{leaf, 0}}), desk.out);
  ASSERT_EQ(desk.out.endings.size(), 1U);
  EXPECT_THAT(desk.out.endings[0].failure.what, HasSubstr("call 5"));
}

/// Worker 1, in a FAST pass of worker 0.
struct FastDesk : Desk {
  FastDesk() : Desk(1) {
    auto grads = this->grads(of_zero, 2, {tensor});
    grads.fast = grads.opens = true;
    hear(2, grads);
    passes.scanned(of_zero, Middle().shape.snapshot(), out);
    forget();
  }
  PassMessage claim(uint64_t id) const {
    auto claim = message(PassKind::Claim, of_zero);
    claim.answers.push_back({pair(id)});
    return claim;
  }
  void expect_null(uint64_t id, int to) const {
    ASSERT_THAT(sent(PassKind::Grads), ElementsAre(to));
    EXPECT_EQ(first(PassKind::Grads)->answers[0].pair, pair(id));
    EXPECT_EQ(first(PassKind::Grads)->answers[0].tensors, 0U);
  }
};

TEST(PassRules, FastAnswersAnothersGradientThatCameLateOnceItsSenderClaimsIt) {
  FastDesk desk;
  desk.passes.late_recv(pair(9), rank(3), /*gradient=*/true, desk.out);
  EXPECT_THAT(desk.sent(PassKind::Grads), IsEmpty()) << "its sender may take no part";
  desk.hear(3, desk.claim(9));
  desk.expect_null(9, 3);
  desk.forget();
  desk.hear(3, desk.claim(9));
  EXPECT_THAT(desk.sent(PassKind::Grads), IsEmpty()) << "one answer is enough";
}

TEST(PassRules, FastAnswersAnothersGradientThatWasClaimedBeforeItCame) {
  FastDesk desk;
  desk.hear(3, desk.claim(9));
  EXPECT_THAT(desk.sent(PassKind::Grads), IsEmpty());
  desk.passes.late_recv(pair(9), rank(3), /*gradient=*/true, desk.out);
  desk.expect_null(9, 3);
}

TEST(PassRules, FastReportsAgainWhereItWasDoneBeforeThat) {
  FastDesk desk;
  desk.run(of_zero);
  ASSERT_THAT(desk.sent(PassKind::Report), ElementsAre(0));
  desk.forget();
  desk.passes.late_recv(pair(9), rank(3), /*gradient=*/true, desk.out);
  desk.hear(3, desk.claim(9));
  ASSERT_THAT(desk.sent(PassKind::Report), ElementsAre(0));
  const auto& report = *desk.first(PassKind::Report);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.number, 2U);
  const auto to_three = [](const ChannelReport& channel) { return channel.peer == rank(3) && channel.sent == 1; };
  EXPECT_TRUE(std::any_of(report.channels.begin(), report.channels.end(), to_three));
}

TEST(PassRules, FastAsksForCallsByNameAndClaimsGradients) {
  Desk desk(1);
  Shape shape;
  const auto leaf = shape.node(Role::Leaf);
  shape.send(2, 2, {{leaf}});
  shape.send(3, 2, {{leaf}}, /*gradient=*/true);
  auto start = desk.message(PassKind::Start, of_zero);
  start.fast = true;
  desk.hear(0, start);
  desk.passes.scanned(of_zero, shape.snapshot(), desk.out);
  auto blame = desk.message(PassKind::Blame, of_zero);
  blame.blamed = rank(2);
  desk.hear(0, blame);
  ASSERT_THAT(desk.sent(PassKind::Which), ElementsAre(2));
  ASSERT_EQ(desk.first(PassKind::Which)->answers.size(), 1U);
  EXPECT_EQ(desk.first(PassKind::Which)->answers[0].pair, pair(2));
  ASSERT_THAT(desk.sent(PassKind::Claim), ElementsAre(2));
  ASSERT_EQ(desk.first(PassKind::Claim)->answers.size(), 1U);
  EXPECT_EQ(desk.first(PassKind::Claim)->answers[0].pair, pair(3));
}

TEST(PassRules, FastAnswersAGradientOfAnEarlierPassWithNullWhereItIsNotUsed) {
  Desk desk(1);
  Middle middle;
  middle.shape.unreached(5, 3, /*gradient=*/true);
  auto grads = desk.grads(of_zero, 2, {tensor});
  grads.fast = grads.opens = true;
  desk.hear(2, grads);
  desk.passes.scanned(of_zero, middle.shape.snapshot(), desk.out);
  EXPECT_THAT(desk.out.endings, IsEmpty());
  ASSERT_THAT(desk.sent(PassKind::Grads), ElementsAre(3));
  EXPECT_EQ(desk.first(PassKind::Grads)->answers[0].pair, pair(5));
  EXPECT_EQ(desk.first(PassKind::Grads)->answers[0].tensors, 0U);
  EXPECT_EQ(desk.run(of_zero).size(), 3U);
}

}  // namespace
}  // namespace farad::autograd::test
