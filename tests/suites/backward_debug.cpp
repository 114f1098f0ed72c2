// What a worker says of the passes that run.

#include <torch/csrc/autograd/custom_function.h>

#include <sstream>
#include <thread>

#include "suites/backward_suite.h"

namespace farad::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

static Door* held;

/// Identity; going back it waits at the door.
struct Held : torch::autograd::Function<Held> {
  static Tensor forward(torch::autograd::AutogradContext*, Tensor x) { return x * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    held->pass();
    return gradients;
  }
};

Tensor hold_going_back(Tensor x) { return Held::apply(x * 2); }

TEST_P(BackwardSuite, PassThatTakesLongShowsHowFarItIsAndWhomItWaitsFor) {
  Door door;
  held = &door;
  Group group = start(2);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<hold_going_back>("worker1", leaf(1)).sum();
  std::thread passing([&, id = context.id()] { backward(group[0], id, {y}); });
  ASSERT_TRUE(door.has_come());

  const auto root = group[0].debug(), there = group[1].debug();
  ASSERT_EQ(root.contexts.size(), 1u);
  EXPECT_EQ(root.contexts[0].id, context.id());
  ASSERT_EQ(root.contexts[0].passes.size(), 1u);
  const auto& of_root = root.contexts[0].passes[0];
  EXPECT_EQ(of_root.root, "worker0");
  EXPECT_EQ(of_root.number, 1u);
  EXPECT_EQ(of_root.nodes, 4u);  // The sum, its recv; the send, the leaf.
  EXPECT_EQ(of_root.fired, 2u);
  EXPECT_THAT(of_root.waits_for, ElementsAre("worker1"));
  ASSERT_EQ(there.contexts.at(0).passes.size(), 1u);
  EXPECT_EQ(there.contexts[0].passes[0].root, "worker0");
  EXPECT_EQ(there.contexts[0].passes[0].running, 1u);
  EXPECT_THAT(there.contexts[0].passes[0].waits_for, IsEmpty());
  std::ostringstream text;
  text << root;
  EXPECT_THAT(text.str(), AllOf(HasSubstr("pass 1 of worker0: runs, 2 of 4 nodes fired"), HasSubstr("for worker1")));

  door.open();
  passing.join();
  EXPECT_TRUE(eventually([&] { return group[1].debug().contexts.at(0).passes.empty(); }));
}

Tensor twice(Tensor x) { return x * 2; }

/// Edges from a recv to its send.
int pairs_in(const std::string& drawing) {
  int pairs = 0;
  for (size_t at = 0; (at = drawing.find("style=dashed", at)) != std::string::npos; at++) pairs++;
  return pairs;
}

TEST_P(BackwardSuite, DrawingMarksWhatTheLossesLeadTo) {
  Group group = start(2);
  Context context(group[0]);
  const auto used = group[0].rpc_sync<twice>("worker1", leaf(1)), unused = group[0].rpc_sync<twice>("worker1", leaf(1));

  const auto plain = context.dot();
  EXPECT_THAT(plain, AllOf(HasSubstr("label=\"worker0\""), HasSubstr("label=\"worker1\""), Not(HasSubstr("grey"))));
  EXPECT_EQ(pairs_in(plain), 4);  // Of each call one there, and one back.
  const auto marked = context.dot({used.sum() + used.sum()});
  EXPECT_EQ(pairs_in(marked), 4);
  EXPECT_THAT(marked, AllOf(HasSubstr("SumBackward0 (1)"), HasSubstr("twice\\\", rank 1) (2)"),
                            ContainsRegex("MulBackward. [(]1[)]"), ContainsRegex("MulBackward.\", color=grey")));
  EXPECT_THROW(context.dot({at::ones(1)}), Error);  // requires no gradient
}

Tensor twice_at(int to, Tensor x) { return Worker::current().rpc_sync<twice>(to, x); }

TEST_P(BackwardSuite, DrawingShowsWorkersThatOnlyAPeerHasMet) {
  Group group = start(3);
  Context context(group[0]);
  const auto y = group[0].rpc_sync<twice_at>("worker1", 2, leaf(1));
  const auto drawing = context.dot({y.sum()});
  EXPECT_THAT(drawing, AllOf(HasSubstr("label=\"worker2\""), ContainsRegex("MulBackward. [(]1[)]"),
                             HasSubstr("AccumulateGrad (1)"), Not(HasSubstr("grey"))));
  EXPECT_EQ(pairs_in(drawing), 4);
}

TEST_P(BackwardSuite, DrawingShowsWhatIsBesideTheLossesToo) {
  Group group = start(1);
  Context context(group[0]);
  const auto shared = leaf(1);
  const auto loss = (shared + leaf(2)).sum(), beside = shared.exp();

  EXPECT_THAT(context.dot({loss}), Not(HasSubstr("ExpBackward")));
  EXPECT_THAT(context.dot({loss}, {beside}),
              AllOf(ContainsRegex("AddBackward. [(]1[)]"), ContainsRegex("ExpBackward.\", color=grey"),
                    HasSubstr("AccumulateGrad (1)"), Not(HasSubstr("AccumulateGrad (2)"))));
  EXPECT_THAT(context.dot({}, {beside}), AllOf(HasSubstr("ExpBackward"), Not(HasSubstr("grey"))));
  EXPECT_THROW(context.dot({loss}, {Tensor()}), Error);
}

}  // namespace
}  // namespace farad::test
