// Random programs of calls, references and failures, drawn from a seed. Whatever happens, each call ends, with its
// result or a named error, and runs at most once; every value is freed; nothing is left at any worker.

#include <gtest/gtest.h>

#include "sim/town.h"
#include "suites/seeds.h"

namespace farad::test {
namespace {

Simulation::Options drawn(uint64_t seed, net::sim::Faults faults = {}) {
  Simulation::Options options;
  options.size = 2 + static_cast<int>(seed % 4);
  options.faults = faults;
  options.worker.threads = 1 + static_cast<int>(seed % 3);
  return options;
}

TEST(SimulatedCalls, WithoutTroubleEachCallGivesItsResultAndNothingIsLeft) {
  for_each_seed(200, [](uint64_t seed) {
    Town here(seed, drawn(seed), {});
    here.run();
    EXPECT_GT(here.results(), 0u);
  });
}

TEST(SimulatedCalls, WhateverBreaksEachCallEndsAndNothingIsLeft) {
  for_each_seed(200, [](uint64_t seed) {
    net::sim::Faults faults;
    faults.breaks = seed % 3 == 0 ? 0.01 : 0;
    faults.stalls = seed % 5 == 0 ? 0.05 : 0;
    Town here(seed, drawn(seed, faults), {.any = true, .restarts = false});
    here.run();
  });
}

TEST(SimulatedCalls, WorkersThatComeBackAreCalledAgain) {
  for_each_seed(200, [](uint64_t seed) {
    Town here(seed, drawn(seed), {.any = true, .restarts = true});
    here.run();
  });
}

TEST(SimulatedCalls, SeedReplaysToTheLastStep) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    uint64_t hashes[2];
    for (auto& hash : hashes) {
      Town here(seed, drawn(seed), {.any = true, .restarts = true});
      here.run();
      hash = here.simulation().world().trace_hash();
    }
    EXPECT_EQ(hashes[0], hashes[1]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace farad::test
