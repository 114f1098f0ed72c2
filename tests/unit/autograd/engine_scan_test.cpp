#include "autograd/engine/scan.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "autograd/engine/needed.h"
#include "engine_against_torch.h"

namespace farad::autograd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using torch::autograd::impl::gradient_edge;

constexpr ContextId context(5);

Passage passage(uint64_t pair, uint16_t peer) {
  return {.context = context, .pair = PairId(pair), .peer = base::Rank(peer), .call = "forward"};
}

at::Tensor received(const compat::Ptr<RecvNode>& recv, at::IntArrayRef sizes) {
  auto tensor = at::ones(sizes);
  set_history(recv, {tensor});
  return tensor;
}

TEST(EngineScan, NodesHaveTheirRolesAndLinks) {
  auto a = leaf({2});
  auto recv = compat::make_node<RecvNode>(passage(1, 3));
  auto r = received(recv, {2});
  auto y = a * r;
  auto send = compat::make_node<SendNode>(passage(2, 4), Tensors{y, a});

  Plan plan;
  ASSERT_TRUE(scan({.context = context, .roots = {gradient_edge(y)}, .sends = {send}}, plan).ok());
  const Topology& shape = plan.topology;
  ASSERT_EQ(plan.size(), 4u);
  EXPECT_EQ(shape.roles, (std::vector{Role::Function, Role::Send, Role::Leaf, Role::Recv}));
  EXPECT_EQ(plan.roots[0].node, 0u);
  ASSERT_EQ(shape.links_of(1).size(), 2u);
  EXPECT_EQ(shape.links_of(1)[0].node, 0u);
  EXPECT_EQ(shape.links_of(1)[1].node, 2u);
  EXPECT_TRUE(shape.links_of(2).empty());
  ASSERT_EQ(shape.sends.size(), 1u);
  EXPECT_EQ(shape.sends[0].node, 1u);
  EXPECT_EQ(shape.sends[0].pair, PairId(2));
  EXPECT_EQ(shape.sends[0].peer, base::Rank(4));
  EXPECT_EQ(shape.sends[0].tensors, 2u);
  ASSERT_EQ(shape.recvs.size(), 1u);
  EXPECT_EQ(shape.recvs[0].node, 3u);
  EXPECT_EQ(shape.recvs[0].pair, PairId(1));
  EXPECT_EQ(shape.recvs[0].tensors, 1u);
  EXPECT_GT(shape.priority[2], shape.priority[0]) << "leaves go first";
}

TEST(EngineScan, RecvsThatNothingLeadsToAreUnreached) {
  auto used = compat::make_node<RecvNode>(passage(1, 3));
  auto y = received(used, {2}) * leaf({2});
  Plan plan;
  const Crossing gone{.node = no_node, .pair = PairId(9), .peer = base::Rank(2), .tensors = 4, .gradient = true};
  const Crossing known{.node = no_node, .pair = PairId(1), .peer = base::Rank(3), .tensors = 1};
  ASSERT_TRUE(scan({.context = context, .roots = {gradient_edge(y)}, .recvs = {gone, known}}, plan).ok());
  ASSERT_EQ(plan.topology.unreached.size(), 1u);
  EXPECT_EQ(plan.topology.unreached[0].pair, PairId(9));
  EXPECT_EQ(plan.topology.unreached[0].tensors, 4u);
  EXPECT_TRUE(plan.topology.unreached[0].gradient);
}

TEST(EngineScan, ACallOfAnotherContextIsAnErrorThatNamesBoth) {
  auto other = passage(1, 3);
  other.context = ContextId(77);
  auto y = received(compat::make_node<RecvNode>(other), {2}) * 2;
  Plan plan;
  const auto status = scan({.context = context, .roots = {gradient_edge(y)}}, plan);
  EXPECT_EQ(status.code(), base::Code::Invalid);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("context 5"), HasSubstr("context 77"), HasSubstr("\"forward\"")));
}

TEST(EngineScan, ACallOfAnotherContextThatWasOnlySentIsBarred) {
  auto other = passage(1, 3);
  other.context = ContextId(77);
  const auto foreign = received(compat::make_node<RecvNode>(other), {2}) * 2;
  const auto send = compat::make_node<SendNode>(passage(2, 3), Tensors{foreign});
  const auto x = leaf({2});
  Plan plan;
  ASSERT_TRUE(scan({.context = context, .roots = {gradient_edge(x * 3)}, .sends = {send}}, plan).ok());
  ASSERT_EQ(plan.barred.size(), 1u);
  EXPECT_TRUE(plan.topology.recvs.empty());
  EXPECT_THAT(plan.barred[0].second.message(), AllOf(HasSubstr("context 5"), HasSubstr("context 77")));
  EXPECT_FALSE(plan.why_barred(plan.barred[0].first).ok());
  EXPECT_TRUE(plan.why_barred(plan.roots[0].node).ok());
}

/// A node that does not know its inputs.
struct Unaware : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
};

TEST(EngineScan, ALinkToAnInputThatIsNotThereIsRefused) {
  auto tensor = at::ones({2});
  torch::autograd::impl::set_gradient_edge(tensor, {compat::make_node<Unaware>(), 0});
  Plan plan;
  const auto status = scan({.roots = {gradient_edge(tensor * 2)}}, plan);
  EXPECT_EQ(status.code(), base::Code::Invalid);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("MulBackward"), HasSubstr("Unaware"), HasSubstr("input 0")));
}

TEST(EngineScan, GradientsGoFromASendToARecv) {
  auto recv = compat::make_node<RecvNode>(passage(1, 3));
  Tensors in{at::ones({2}), at::ones({3})};
  set_history(recv, in);
  auto a = leaf({2});
  in[0].register_hook([](at::Tensor g) { return g * 100; });
  auto send = compat::make_node<SendNode>(passage(2, 4), Tensors{in[0] * a, in[1] * 3, a});

  auto plan = std::make_shared<Plan>();
  ASSERT_TRUE(scan({.context = context, .sends = {send}}, *plan).ok());
  Evaluator evaluator(plan, {});
  const Evaluator::Scope scope(evaluator);
  const NodeIndex entry = plan->topology.sends[0].node;
  ASSERT_TRUE(evaluator.feed({entry, 0}, at::full({2}, 5.0, at::kDouble)).ok());  // made to fit
  ASSERT_TRUE(evaluator.feed({entry, 1}, at::Tensor()).ok());
  ASSERT_TRUE(evaluator.feed({entry, 2}, at::ones({2})).ok());
  EXPECT_FALSE(evaluator.feed({entry, 2}, at::ones({7})).ok());

  ASSERT_TRUE(evaluator.run(entry).ok());
  for (NodeIndex node = 0; node < plan->size(); node++) {
    if (plan->topology.roles[node] != Role::Function) continue;
    ASSERT_TRUE(evaluator.run(node).ok());
  }
  Tensors out;
  ASSERT_TRUE(evaluator.take(plan->topology.recvs[0].node, out).ok());
  ASSERT_EQ(out.size(), 2u);
  EXPECT_TRUE(at::allclose(out[0], 500 * a));
  EXPECT_FALSE(out[1].defined()) << "undefined must not become zeros";
  ASSERT_TRUE(evaluator.run(plan->find(gradient_edge(a)).node).ok());
  EXPECT_TRUE(at::equal(evaluator.take_gradients().at(0).gradient, at::full({2}, 6.f)));
}

TEST(EngineScan, RecvsAreNeededWhateverIsWanted) {
  auto a = leaf({2}), b = leaf({2});
  auto x = a * 2, y = received(compat::make_node<RecvNode>(passage(1, 3)), {2}) * b, z = b * 3;
  Plan plan;
  ASSERT_TRUE(scan({.context = context, .roots = {gradient_edge(x * y * z)}}, plan).ok());
  auto node = [&](const at::Tensor& tensor) { return plan.find(gradient_edge(tensor)).node; };

  const std::vector<NodeIndex> leaves{node(a)};
  const auto needs = find_needed(plan.topology, leaves, {});
  EXPECT_EQ(needs[node(x)], Need::Call);
  EXPECT_EQ(needs[node(y)], Need::Call);
  EXPECT_EQ(needs[node(z)], Need::Nothing);
  EXPECT_EQ(needs[node(b)], Need::Nothing);

  const std::vector<Link> captures{{node(z), 0}, {no_node, 0}};
  EXPECT_EQ(find_needed(plan.topology, {}, captures)[node(z)], Need::Capture);
}

TEST(EngineScan, NumbersDependOnTheShapeOfTheGraphOnly) {
  auto shape = [] {
    auto a = leaf({2}), b = leaf({2});
    auto x = a * b;
    Plan plan;
    EXPECT_TRUE(scan({.roots = {gradient_edge((x.exp() + x * b).sum())}}, plan).ok());
    std::vector<NodeIndex> to;
    for (const Link& link : plan.topology.links) to.push_back(link.node);
    return to;
  };
  EXPECT_EQ(shape(), shape());
}

}  // namespace
}  // namespace farad::autograd
