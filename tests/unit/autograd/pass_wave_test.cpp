#include <gtest/gtest.h>

#include "autograd/pass/wave.h"
#include "pass_desk.h"

namespace farad::autograd::test {
namespace {

std::vector<NodeIndex> run_all(Wave& wave) {
  std::vector<NodeIndex> order;
  for (NodeIndex node; (node = wave.next()) != no_node;) {
    order.push_back(node);
    wave.ran(node);
  }
  return order;
}

TEST(PassWave, TheLargestPriorityGoesFirstAndAmongEqualsTheFirst) {
  Shape shape;
  const auto low = shape.node(Role::Leaf, {}, 1);
  const auto equal = shape.node(Role::Leaf, {}, 5);
  const auto equal_too = shape.node(Role::Leaf, {}, 5);
  const auto root = shape.node(Role::Function, {{equal_too}, {low}, {equal}}, 9);
  Wave wave(shape.topology());
  wave.start(std::vector<Link>{{root}});
  EXPECT_EQ(run_all(wave), (std::vector{root, equal, equal_too, low}));
  EXPECT_EQ(wave.left(), 0U);
}

TEST(PassWave, ANodeWaitsForEverythingThatLeadsToIt) {
  Shape shape;
  const auto shared = shape.node(Role::Leaf, {}, 100);
  const auto left = shape.node(Role::Function, {{shared}}, 1);
  const auto right = shape.node(Role::Function, {{shared}, {shared}}, 2);
  const auto root = shape.node(Role::Function, {{left}, {right}, {no_node}}, 3);
  Wave wave(shape.topology());
  wave.start(std::vector<Link>{{root}});
  EXPECT_EQ(run_all(wave), (std::vector{root, right, left, shared}));
}

TEST(PassWave, TwoRootsMayLeadToOneNode) {
  Shape shape;
  const auto node = shape.node(Role::Function);
  Wave wave(shape.topology());
  wave.start(std::vector<Link>{{node, 0}, {node, 1}});
  EXPECT_EQ(run_all(wave), std::vector{node});
}

TEST(PassWave, OnlyLiveTensorsOfASendGoOn) {
  Shape shape;
  const auto used = shape.node(Role::Leaf);
  const auto ignored = shape.node(Role::Leaf);
  const auto send = shape.send(1, 1, {{used}, {ignored}});
  Wave wave(shape.topology());
  wave.start({});
  EXPECT_EQ(wave.next(), no_node);
  wave.answer(0, std::vector{TensorState::Undefined, TensorState::Null});
  EXPECT_EQ(run_all(wave), (std::vector{send, used}));
  EXPECT_EQ(wave.left(), 0U) << "node " << ignored << " has fired, without being run";
}

TEST(PassWave, ARecvKnowsWhichOfItsTensorsAreReached) {
  Shape shape;
  const auto recv = shape.recv(1, 1, 3);
  const auto root = shape.node(Role::Function, {{recv, 2}});
  const auto other = shape.send(2, 1, {{recv, 0}});
  Wave wave(shape.topology());
  wave.start(std::vector<Link>{{root}});
  wave.answer(0, {});
  EXPECT_EQ(run_all(wave), (std::vector{root, recv})) << "and not the send, node " << other;
  ASSERT_EQ(wave.fired(), std::vector<uint32_t>{0});
  const auto live = wave.tensors_of_recv(0);
  EXPECT_EQ(std::vector<uint8_t>(live.begin(), live.end()), (std::vector<uint8_t>{0, 0, 1}));
}

TEST(PassWave, RecvsRunBeforeAllElse) {
  Shape shape;
  const auto recv = shape.recv(1, 1);
  const auto heavy = shape.node(Role::Leaf, {}, 1000);
  const auto root = shape.node(Role::Function, {{heavy}, {recv}});
  Wave wave(shape.topology());
  wave.start(std::vector<Link>{{root}});
  EXPECT_EQ(run_all(wave), (std::vector{root, recv, heavy}));
}

TEST(PassWave, TellingTwiceThatANodeRanChangesNothing) {
  Shape shape;
  const auto leaf = shape.node(Role::Leaf);
  const auto root = shape.node(Role::Function, {{leaf}, {leaf}});
  Wave wave(shape.topology());
  wave.start(std::vector<Link>{{root}});
  ASSERT_EQ(wave.next(), root);
  wave.ran(root);
  wave.ran(root);
  wave.ran(leaf);  // Nobody was told to run it.
  EXPECT_EQ(wave.left(), 1U);
  EXPECT_EQ(wave.next(), leaf);
}

TEST(PassWave, AChainOf300000NodesNeedsNoStackWhetherReachedOrNot) {
  constexpr NodeIndex length = 300'000;
  for (const bool live : {true, false}) {
    Shape shape;
    NodeIndex last = shape.recv(1, 1);
    for (NodeIndex i = 0; i < length; ++i) last = shape.node(Role::Function, {{last}}, i);
    shape.send(2, 1, {{last}});
    Wave wave(shape.topology());
    wave.start({});
    wave.answer(0, std::vector{live ? TensorState::Tensor : TensorState::Null});
    EXPECT_EQ(run_all(wave).size(), live ? length + 2 : 0U);
    EXPECT_EQ(wave.left(), 0U);
    EXPECT_EQ(wave.fired().size(), 1U);
  }
}

}  // namespace
}  // namespace farad::autograd::test
