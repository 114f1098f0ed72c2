// What a pass says of how far it has come, at each step of its way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_desk.h"

namespace farad::autograd::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr auto tensor = TensorState::Tensor;
const PassId of_zero{base::Rank(0), 1};

/// Worker 1 got a tensor from 0 (pair 1), and sent what it made of it to 2 and 3 (pairs 2 and 3).
Shape fork() {
  Shape shape;
  const auto recv = shape.recv(1, 0);
  const auto function = shape.node(Role::Function, {{recv}});
  shape.send(2, 2, {{function}});
  shape.send(3, 3, {{function}});
  return shape;
}

TEST(PassProgress, CountsNodesAndNamesWhomTheyWaitFor) {
  Desk desk(1);
  desk.hear(0, PassKind::Start, of_zero);
  EXPECT_EQ(desk.passes.progress().at(0).state, PassState::Scanning);
  EXPECT_EQ(desk.passes.progress().at(0).nodes, 0U);

  desk.passes.scanned(of_zero, fork().snapshot(), desk.out);
  auto now = desk.passes.progress().at(0);
  EXPECT_EQ(now.state, PassState::Running);
  EXPECT_EQ(now.nodes, 4U);
  EXPECT_EQ(now.fired, 0U);
  EXPECT_THAT(now.waits_for, ElementsAre(rank(2), rank(3)));

  desk.hear(3, desk.grads(of_zero, 3, {tensor}));
  const auto node = desk.passes.next_ready(of_zero);
  EXPECT_EQ(desk.passes.progress().at(0).running, 1U);
  desk.passes.ran(of_zero, node, desk.out);
  now = desk.passes.progress().at(0);
  EXPECT_EQ(now.running, 0U);
  EXPECT_EQ(now.fired, 1U);
  EXPECT_THAT(now.waits_for, ElementsAre(rank(2)));
}

TEST(PassProgress, OfOneThatIsDoneWaitsForItsRoot) {
  Desk desk(1);
  desk.start(of_zero, 0, fork().snapshot());
  desk.hear(2, desk.grads(of_zero, 2, {}));
  desk.hear(3, desk.grads(of_zero, 3, {tensor}));
  desk.run(of_zero);
  const auto now = desk.passes.progress().at(0);
  EXPECT_EQ(now.state, PassState::Done);
  EXPECT_EQ(now.fired, 4U);
  EXPECT_THAT(now.waits_for, ElementsAre(rank(0)));
  desk.hear(0, PassKind::Commit, of_zero);
  EXPECT_THAT(desk.passes.progress(), IsEmpty());
}

TEST(PassProgress, OfARootThatIsDoneWaitsForThoseWhoAreNot) {
  Desk desk(0);
  const auto pass = desk.passes.begin(false, {}, desk.out);
  desk.passes.scanned(pass, Shape().snapshot({}, {1, 2}), desk.out);
  EXPECT_THAT(desk.passes.progress().at(0).waits_for, ElementsAre(rank(1), rank(2)));
  desk.hear(2, PassKind::Done, pass);
  EXPECT_THAT(desk.passes.progress().at(0).waits_for, ElementsAre(rank(1)));
}

TEST(PassProgress, OfAnOrphanWaitsForAllWhoMayHaveHeard) {
  Desk desk(1, 3);
  desk.start(of_zero, 0, Shape().snapshot());
  desk.passes.on_lost(rank(0), desk.out);
  const auto now = desk.passes.progress().at(0);
  EXPECT_EQ(now.state, PassState::Orphan);
  EXPECT_THAT(now.waits_for, ElementsAre(rank(0), rank(2)));
}

}  // namespace
}  // namespace farad::autograd::test
