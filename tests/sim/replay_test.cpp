#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "sim/simulated_worker.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using base::Rank;
using net::sim::Faults;
using net::sim::World;

/// A ring of workers passes tokens round while the seed breaks connections, crashes and cuts.
struct Passed {
  uint64_t hash;
  std::string trace;
  size_t messages = 0;
};

Passed run_ring(uint64_t seed, uint16_t workers, int rounds) {
  Faults faults;
  faults.breaks = 0.01;
  World world(seed, faults);
  Passed run{};
  world.run([&] {
    std::vector<std::unique_ptr<SimulatedWorker>> ring;
    for (uint16_t rank = 0; rank < workers; ++rank)
      ring.push_back(std::make_unique<SimulatedWorker>(world, Rank(rank)));
    for (uint16_t rank = 0; rank < workers; ++rank) {
      const Rank next((rank + 1) % workers);
      SimulatedWorker& worker = *ring[rank];
      worker.meet(next, *ring[next.value]);
      worker.heard().at_message = [&worker, next](net::Peer, const wire::Message& message) {
        if (message.tag > 0) (void)worker.send(next, message.tag - 1);
      };
    }
    const std::set<Rank> first_half = [&] {
      std::set<Rank> ranks;
      for (uint16_t rank = 0; rank < workers / 2; ++rank) ranks.insert(Rank(rank));
      return ranks;
    }();
    world.after(1ms, [&] { world.partition(first_half, {Rank(workers - 1)}, 5ms); });
    for (uint16_t rank = 0; rank < workers; ++rank) (void)ring[rank]->send(Rank((rank + 1) % workers), rounds);
    ring[0]->idle(10s);
    for (auto& worker : ring) run.messages += worker->heard().messages();
  });
  run.hash = world.trace_hash();
  run.trace = world.trace_text();
  return run;
}

TEST(Replay, SeedReplaysToTheLastStep) {
  for (uint64_t seed : {1, 2, 3}) {
    const Passed first = run_ring(seed, 8, 20), second = run_ring(seed, 8, 20);

    EXPECT_EQ(first.hash, second.hash);
    EXPECT_EQ(first.trace, second.trace);
    EXPECT_GT(first.messages, 8u);
  }
}

TEST(Replay, SeedsDiffer) { EXPECT_NE(run_ring(1, 8, 20).hash, run_ring(2, 8, 20).hash); }

TEST(Replay, HundredsOfWorkersAreCheap) { EXPECT_GT(run_ring(4, 300, 10).messages, 1500u); }

}  // namespace
}  // namespace farad::test
