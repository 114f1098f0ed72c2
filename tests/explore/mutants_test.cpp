// The protocol with one thing done wrong must be found out, or the other tests here prove nothing.

#include <gtest/gtest.h>

#include <iostream>

#include "explore/explorer.h"
#include "explore/small_graphs.h"

namespace farad::autograd::explore {
namespace {

struct Mutant {
  const char* name;
  bool Faults::* fault;
};

class MutantsOfThePass : public testing::TestWithParam<Mutant> {};

/// What is wrong with it, by random ways through random graphs and by every way through small ones.
std::string find_fault(const Faults& faults) {
  for (uint32_t seed = 0; seed < 3'000; ++seed) {
    std::mt19937 random(seed);
    auto graph = std::make_shared<Graph>(seed % 6 == 1 ? random_nested_graph(random) : random_busy_graph(random));
    if (graph->workers > 1 && seed % 3 == 0) {
      graph->lost_before = static_cast<int>(random() % static_cast<unsigned>(graph->workers));
      std::erase_if(graph->roots, [&](const Graph::Root& root) { return root.worker == graph->lost_before; });
    }
    if (seed % 4 == 2) break_one_before(*graph, random);
    if (seed % 5 == 0) {
      for (auto& root : graph->roots) root.fast = true;
    }
    if (seed % 10 == 0) mark_gradients(*graph);
    const Dangers dangers{.kills = seed % 3 == 1, .cuts = seed % 3 == 2};
    const auto findings = try_one(World(graph, dangers, faults), seed);
    if (!findings.violation.empty()) return "seed " + std::to_string(seed) + ": " + findings.violation;
  }
  for (const auto make : {round_trip, star, triangle}) {
    const auto findings = try_all(World(std::make_shared<Graph>(make()), {.kills = 1}, faults));
    if (!findings.violation.empty()) return show(findings);
  }
  return {};
}

TEST_P(MutantsOfThePass, AreFound) {
  Faults faults;
  faults.*GetParam().fault = true;
  const auto found = find_fault(faults);
  EXPECT_NE(found, "") << "nobody noticed";
  std::cout << "  " << found.substr(0, found.find('\n')) << '\n';
}

TEST(Mutants, NoneIsFoundWhereThereIsNone) { EXPECT_EQ(find_fault({}), ""); }

INSTANTIATE_TEST_SUITE_P(
    All, MutantsOfThePass,
    testing::Values(Mutant{"DropNulls", &Faults::drop_nulls}, Mutant{"DoneEarly", &Faults::done_early},
                    Mutant{"AnswerTwice", &Faults::answer_twice}, Mutant{"IgnoreLiveBits", &Faults::ignore_live_bits},
                    Mutant{"NullIsLive", &Faults::null_is_live}, Mutant{"IgnoreLateRecvs", &Faults::ignore_late_recvs},
                    Mutant{"IgnoreLateGradients", &Faults::ignore_late_gradients},
                    Mutant{"BlameGradients", &Faults::blame_gradients},
                    Mutant{"DoneNamesLaterPeers", &Faults::done_names_later_peers},
                    Mutant{"CommitAlone", &Faults::commit_alone}, Mutant{"KeepAbort", &Faults::keep_abort},
                    Mutant{"DecideWhenDone", &Faults::decide_when_done}, Mutant{"OrphansDrop", &Faults::orphans_drop},
                    Mutant{"ForgetPasses", &Faults::forget_passes}, Mutant{"WaitForLost", &Faults::wait_for_lost},
                    Mutant{"LoseLiveGrads", &Faults::lose_live_grads},
                    Mutant{"IgnoreDisputes", &Faults::ignore_disputes},
                    Mutant{"IgnoreLostGradients", &Faults::ignore_lost_gradients},
                    Mutant{"SkipBalance", &Faults::skip_balance}, Mutant{"CommitInner", &Faults::commit_inner}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace farad::autograd::explore
