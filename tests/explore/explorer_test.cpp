// Every order of everything that can happen, on graphs small enough for that.

#include <gtest/gtest.h>

#include <iostream>

#include "explore/explorer.h"
#include "explore/small_graphs.h"

namespace farad::autograd::explore {
namespace {

void expect_good_in_every_order(const Graph& graph, Dangers dangers) {
  const auto findings = try_all(World(std::make_shared<Graph>(graph), dangers));
  EXPECT_TRUE(findings.violation.empty() && findings.complete) << show(findings);
  std::cout << "  " << findings.states << " states, " << findings.steps << " steps, " << findings.ends << " ends\n";
}

/// Each of the small graphs.
class EveryOrder : public testing::TestWithParam<std::pair<const char*, Graph (*)()>> {
 protected:
  Graph graph() const { return GetParam().second(); }
  bool is_large() const { return graph().workers > 2 && graph().pairs.size() > 2; }
};

TEST_P(EveryOrder, EndsWell) { expect_good_in_every_order(graph(), {}); }

TEST_P(EveryOrder, EndsWellWithAWorkerLostAtAnyStep) { expect_good_in_every_order(graph(), {.kills = 1}); }

TEST_P(EveryOrder, EndsWellWithAConnectionBrokenAtAnyStep) {
  expect_good_in_every_order(graph(), {.cuts = 1, .atomic_nodes = true});
}

TEST_P(EveryOrder, EndsWellWithARootThatGivesUpAtAnyStep) {
  expect_good_in_every_order(graph(), {.cancels = 1, .slow_scans = !is_large()});
}

TEST_P(EveryOrder, EndsWellWithALateForwardMessageThatItsSenderMayGiveUp) {
  auto late = graph();
  late.call(1, {{0, 0}});
  late.delay();
  expect_good_in_every_order(late, {.lost_calls = 1});
}

TEST_P(EveryOrder, EndsWellWithAHookThatCallsAnybody) {
  for (int to = 0; to < graph().workers; ++to) {
    for (NodeId node = 0; node < graph().nodes.size(); ++node) {
      auto calling = graph();
      const Input leaf{calling.leaf(calling.nodes[node].worker), 0};
      calling.hook(node, to, leaf);
      const auto findings = try_all(World(std::make_shared<Graph>(calling), {.atomic_nodes = is_large()}));
      EXPECT_TRUE(findings.violation.empty() && findings.complete) << show(findings);
    }
  }
}

TEST_P(EveryOrder, EndsWellWithAHookThatCallsAndAWorkerThatIsLost) {
  auto calling = graph();
  const auto node = calling.roots[0].inputs[0].first;
  calling.hook(node, calling.workers - 1, {0, 0});
  expect_good_in_every_order(calling, {.kills = 1, .atomic_nodes = is_large()});
}

TEST_P(EveryOrder, EndsWellWithANodeThatThrows) {
  for (NodeId node = 0; node < graph().nodes.size(); ++node) {
    auto throwing = graph();
    throwing.nodes[node].throws = true;
    const auto findings = try_all(World(std::make_shared<Graph>(throwing), {.atomic_nodes = is_large()}));
    EXPECT_TRUE(findings.violation.empty() && findings.complete) << show(findings);
  }
}

TEST_P(EveryOrder, EndsWellWithAnyOtherWorkerLostBefore) {
  for (int lost = 1; lost < graph().workers; ++lost) {
    auto without = graph();
    without.lost_before = lost;
    expect_good_in_every_order(without, {});
  }
}

TEST_P(EveryOrder, EndsWellIfAnyTwoLostEachOtherBeforeAndMetAgain) {
  for (int a = 0; a < graph().workers; ++a) {
    for (int b = 0; b < graph().workers; ++b) {
      if (a == b) continue;
      for (const bool both : {true, false}) {
        auto broken = graph();
        broken.broken_before.push_back({a, b, true, both});
        expect_good_in_every_order(broken, {.atomic_nodes = is_large()});
      }
    }
  }
}

TEST_P(EveryOrder, EndsWellIfAConnectionCannotBeMadeAtFirst) {
  expect_good_in_every_order(graph(), {.refusals = 2, .atomic_nodes = is_large()});
}

TEST_P(EveryOrder, EndsWellInFast) {
  auto fast = graph();
  fast.roots[0].fast = true;
  expect_good_in_every_order(fast, {.kills = 1});
}

std::vector<std::pair<const char*, Graph (*)()>> small_graphs() {
  return {{"RoundTrip", round_trip}, {"UnusedCall", unused_call}, {"Triangle", triangle}, {"Star", star},
          {"Bystander", bystander},  {"SelfCall", self_call}};
}
INSTANTIATE_TEST_SUITE_P(Graphs, EveryOrder, testing::ValuesIn(small_graphs()),
                         [](const auto& info) { return info.param.first; });

/// Worker 2 hears that there is no way to the root, which has never had to do with it, and so hears nothing.
TEST(Explorer, AWorkerThatCannotReachTheRootDoesNotLetItWait) {
  for (const bool fast : {false, true}) {
    auto graph = chain();
    graph.roots[0].fast = fast;
    expect_good_in_every_order(graph, {.refusals = 3, .atomic_nodes = true});
  }
}

TEST(Explorer, TwoPassesAtOnceEndWell) {
  for (const auto make : {round_trip, unused_call, bystander, self_call}) {
    auto twice = make();
    twice.roots.push_back(twice.roots[0]);
    expect_good_in_every_order(twice, {});
  }
}

TEST(Explorer, PassesOfTwoRootsAtOnceEndWellWithOneWorkerLost) {
  auto graph = round_trip();
  const auto at_one = static_cast<NodeId>(graph.pairs[0].recv);
  graph.roots.push_back({1, {{at_one, 0}}});
  expect_good_in_every_order(graph, {.kills = 1});
}

TEST(Explorer, APassWithinAnotherEndsAsThatOneDoes) {
  for (const bool fast : {false, true}) {
    auto graph = nested();
    for (auto& root : graph.roots) root.fast = fast;
    expect_good_in_every_order(graph, {.cancels = 1, .atomic_nodes = true});
    expect_good_in_every_order(graph, {.kills = 1, .atomic_nodes = true});
    expect_good_in_every_order(graph, {.cuts = 1, .atomic_nodes = true});
    for (NodeId node = 0; node < graph.nodes.size(); ++node) {
      auto throwing = graph;
      throwing.nodes[node].throws = true;
      const auto findings = try_all(World(std::make_shared<Graph>(throwing), {.atomic_nodes = true}));
      EXPECT_TRUE(findings.violation.empty() && findings.complete) << show(findings);
    }
  }
}

TEST(Explorer, APassWithinAnotherThatReachesMoreWorkersEndsAsThatOneDoes) {
  auto graph = nested_elsewhere();
  for (auto& root : graph.roots) root.fast = true;  // SMART has too many orders; random ones are tried elsewhere.
  expect_good_in_every_order(graph, {.kills = 1, .atomic_nodes = true});
  expect_good_in_every_order(graph, {.cuts = 1, .atomic_nodes = true});
}

/// Worker 1 answers each pass by a gradient; the first one's is recorded, and is in flight to worker 0 in every order
/// beside the other pass.
TEST(Explorer, AFastPassEndsWellBesideOneWhoseGradientsCrossIt) {
  for (const bool both_fast : {false, true}) {
    auto graph = round_trip();
    const auto at_one = graph.pairs[0].recv;
    graph.roots.push_back(graph.roots[0]);
    graph.roots[0].fast = both_fast;
    graph.roots[1].fast = true;
    graph.hook(graph.pairs[1].send, 0, {at_one, 0});
    graph.pairs.back().gradient = true;
    expect_good_in_every_order(graph, {.atomic_nodes = true});
    expect_good_in_every_order(graph, {.kills = 1, .atomic_nodes = true});
  }
}

TEST(Explorer, ASmartAndAFastPassAtOnceEndWell) {
  auto graph = round_trip();
  graph.roots.push_back(graph.roots[0]);
  graph.roots[1].fast = true;
  expect_good_in_every_order(graph, {.cancels = 1});
}

}  // namespace
}  // namespace farad::autograd::explore
