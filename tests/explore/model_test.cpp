// Random graphs over the real protocol, in random orders of events, against what one process would do. A failing seed
// prints itself and every step of its way.

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "explore/explorer.h"
#include "explore/small_graphs.h"
#include "suites/seeds.h"

namespace farad::autograd::explore {
namespace {

using Make = std::function<Graph(std::mt19937&)>;

/// True if every seed ends well.
void expect_good(const Make& make, Dangers dangers, uint64_t usual_seeds) {
  for (uint32_t seed = 0; seed < farad::test::number_of_seeds(usual_seeds); ++seed) {
    std::mt19937 random(seed);
    const auto findings = try_one(World(std::make_shared<Graph>(make(random)), dangers), seed);
    ASSERT_TRUE(findings.violation.empty()) << "seed " << seed << ": " << show(findings);
  }
}

TEST(PassModel, OnePassGivesWhatOneProcessGives) { expect_good(random_graph, {}, 20'000); }

TEST(PassModel, SeveralPassesAtOnceAndHooksThatCallDoNotDisturbEachOther) {
  expect_good(random_busy_graph, {.lost_calls = 2, .slow_scans = true}, 10'000);
}

TEST(PassModel, AWorkerLostAtAnyMomentLeavesOneVerdict) { expect_good(random_busy_graph, {.kills = 1}, 10'000); }

TEST(PassModel, ABrokenConnectionLeavesOneVerdict) {
  expect_good(random_busy_graph, {.cuts = 1, .cancels = 1, .lost_calls = 1, .slow_scans = true}, 10'000);
}

TEST(PassModel, AConnectionThatCannotBeMadeLeavesOneVerdict) {
  expect_good(random_graph, {.refusals = 2}, 20'000);
  expect_good(random_busy_graph, {.cuts = 1, .refusals = 3, .slow_scans = true}, 10'000);
  expect_good(random_nested_graph, {.refusals = 2}, 5'000);
}

TEST(PassModel, AConnectionThatBrokeBeforeAndIsThereAgainLosesNoGradientUnnoticed) {
  const auto broken = [](auto make) {
    return [make](std::mt19937& random) {
      auto graph = make(random);
      break_one_before(graph, random);
      return graph;
    };
  };
  expect_good(broken(random_graph), {}, 20'000);
  expect_good(broken(random_busy_graph), {.lost_calls = 1, .slow_scans = true}, 10'000);
  expect_good(broken(random_nested_graph), {.slow_scans = true}, 5'000);
}

TEST(PassModel, PassesWithinOthersEndAsTheseDo) {
  expect_good(random_nested_graph, {.lost_calls = 1, .slow_scans = true}, 10'000);
  expect_good(random_nested_graph, {.kills = 1}, 10'000);
  expect_good(random_nested_graph, {.cuts = 1, .cancels = 1, .slow_scans = true}, 10'000);
}

TEST(PassModel, AWorkerLostBeforeMattersOnlyIfAGradientHasToGoThere) {
  const auto lose_one = [](std::mt19937& random) {
    auto graph = random_busy_graph(random);
    if (graph.workers == 1) return graph;
    graph.lost_before = static_cast<int>(random() % static_cast<unsigned>(graph.workers));
    std::erase_if(graph.roots, [&](const Graph::Root& root) { return root.worker == graph.lost_before; });
    return graph;
  };
  expect_good(lose_one, {}, 10'000);
}

TEST(PassModel, ANodeThatThrowsFailsThePassAndIsNamed) {
  const auto throws = [](std::mt19937& random) {
    auto graph = random_graph(random);
    graph.nodes[random() % graph.nodes.size()].throws = true;
    return graph;
  };
  expect_good(throws, {}, 5'000);
}

/// To its end, without any dangers.
void play(World& world, std::mt19937& random) {
  for (size_t dangers_from = 0;;) {
    const auto steps = world.steps(dangers_from);
    if (steps.empty()) break;
    world.take(steps[random() % steps.size()]);
  }
}

Graph fast(Graph graph) {
  for (auto& root : graph.roots) root.fast = true;
  return graph;
}

TEST(PassModel, FastGivesWhatOneProcessGivesWhereEveryCallIsUsed) {
  for (uint32_t seed = 0; seed < farad::test::number_of_seeds(5'000); ++seed) {
    std::mt19937 random(seed);
    World world(std::make_shared<Graph>(fast(random_used_graph(random))));
    play(world, random);
    ASSERT_EQ(world.judge(), "") << "seed " << seed;
    ASSERT_TRUE(world.ending(0) && world.ending(0)->committed) << "seed " << seed;
  }
}

TEST(PassModel, FastEndsWhereACallIsNotUsedAndNamesOneThatIsNot) {
  expect_good([](std::mt19937& random) { return fast(random_busy_graph(random)); }, {}, 10'000);
}

TEST(PassModel, FastGivesWhatOneProcessGivesWhereOnlyGradientsOfEarlierPassesAreNotUsed) {
  for (uint32_t seed = 0; seed < farad::test::number_of_seeds(5'000); ++seed) {
    std::mt19937 random(seed);
    auto graph = fast(random_graph(random));
    const Oracle wanted(graph, graph.roots[0]);
    for (size_t i = 0; i < graph.pairs.size(); ++i) {
      graph.pairs[i].in_flight = false;
      graph.pairs[i].gradient = !wanted.uses(static_cast<int>(i));
    }
    World world(std::make_shared<Graph>(graph));
    play(world, random);
    ASSERT_EQ(world.judge(), "") << "seed " << seed;
    ASSERT_TRUE(world.ending(0) && world.ending(0)->committed) << "seed " << seed;
  }
}

/// Some of them are on their way when a pass begins, and some are made by another pass that runs beside it.
TEST(PassModel, FastGivesWhatOneProcessGivesWhereGradientsOfOtherPassesCrossIt) {
  for (uint32_t seed = 0; seed < farad::test::number_of_seeds(10'000); ++seed) {
    std::mt19937 random(seed);
    auto graph = fast(random_busy_graph(random));
    graph.roots.front().fast = seed % 3 != 0;
    mark_gradients(graph);
    World world(std::make_shared<Graph>(graph), {.slow_scans = seed % 2 == 0});
    play(world, random);
    ASSERT_EQ(world.judge(), "") << "seed " << seed;
    for (size_t pass = 0; pass < graph.roots.size(); ++pass) {
      ASSERT_TRUE(world.ending(pass) && world.ending(pass)->committed) << "seed " << seed << ", pass " << pass;
    }
  }
}

TEST(PassModel, FastNeverNamesAGradientOfAnEarlierPass) {
  const auto mixed = [](std::mt19937& random) {
    auto graph = fast(random_graph(random));
    for (auto& pair : graph.pairs) pair.gradient = random() % 2;
    return graph;
  };
  expect_good(mixed, {}, 10'000);
  expect_good(mixed, {.kills = 1}, 5'000);
}

TEST(PassModel, FastLeavesOneVerdictWhenAWorkerIsLost) {
  expect_good([](std::mt19937& random) { return fast(random_used_graph(random)); }, {.kills = 1}, 5'000);
}

/// M gradients or nulls, batched, at most two STARTs for each two workers that talked, a DONE and a COMMIT for each
/// worker but the root.
TEST(PassModel, MessagesAreAsManyAsPromised) {
  for (uint32_t seed = 0; seed < farad::test::number_of_seeds(2'000); ++seed) {
    std::mt19937 random(seed);
    const auto graph = std::make_shared<Graph>(random_graph(random));
    World world(graph);
    play(world, random);
    std::set<std::pair<int, int>> edges;
    int pairs = 0;
    const auto edge = [&](int a, int b) {
      if (a != b) edges.insert(std::minmax(a, b));
    };
    for (const auto& pair : graph->pairs) {
      edge(pair.sender, pair.receiver);
      pairs += pair.sender != pair.receiver;
    }
    for (const auto& [a, b] : graph->talked) edge(a, b);
    const auto sent = [&](PassKind kind) {
      const auto at = world.messages().find(kind);
      return at == world.messages().end() ? 0 : at->second;
    };
    ASSERT_LE(sent(PassKind::Start), 2 * static_cast<int>(edges.size())) << "seed " << seed;
    ASSERT_LE(sent(PassKind::Done), graph->workers - 1) << "seed " << seed;
    ASSERT_EQ(sent(PassKind::Commit), sent(PassKind::Done)) << "seed " << seed;
    ASSERT_LE(sent(PassKind::Grads), pairs) << "seed " << seed;
    ASSERT_LE(world.answers(), pairs) << "seed " << seed << ": each send is answered once";
    for (const auto kind : {PassKind::Abort, PassKind::Ask, PassKind::Over, PassKind::Fail}) {
      ASSERT_EQ(sent(kind), 0) << "seed " << seed << ": " << to_string(kind);
    }
  }
}

TEST(PassModel, AChainOfCallsCostsTheFormulaExactly) {
  auto graph = triangle();
  World world(std::make_shared<Graph>(graph));
  for (size_t dangers_from = 0;;) {
    const auto steps = world.steps(dangers_from);
    if (steps.empty()) break;
    world.take(steps[0]);
  }
  auto messages = world.messages();
  EXPECT_EQ(messages[PassKind::Grads], 3);
  EXPECT_EQ(messages[PassKind::Done], 2);
  EXPECT_EQ(messages[PassKind::Commit], 2);
  EXPECT_EQ(messages[PassKind::Start], 4) << "two of the root, and one more of each other worker";
}

}  // namespace
}  // namespace farad::autograd::explore
