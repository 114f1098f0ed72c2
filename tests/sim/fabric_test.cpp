// Whole fabrics in a simulated world: they meet, talk, crash and come back, and a seed replays all of it.

#include <farad/error.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "net/fabric.h"
#include "net/sim/world.h"
#include "suites/seeds.h"
#include "suites/workers.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using base::Incarnation;
using base::Rank;
using net::sim::World;

/// Workers in processes of their own that send to each other at random while the seed crashes and restarts some.
class Town {
 public:
  Town(World& world, int size) : world_(world), houses_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) move_in(rank);
  }

  void move_in(int rank) {
    House& house = houses_[rank];
    house.process.reset();
    house.heard = std::make_unique<Recorder>();
    house.process = world_.start_worker(Rank(rank), [this, rank] { live(rank); });
  }
  void crash(int rank) { world_.crash(Rank(rank)); }
  Recorder& heard(int rank) { return *houses_[rank].heard; }
  void pass(std::chrono::nanoseconds span) { world_.runtime().make_parker()->park(world_.runtime().now() + span); }

 private:
  struct House {
    std::unique_ptr<Recorder> heard;
    std::unique_ptr<base::Thread> process;
  };

  void live(int rank) {
    net::FabricOptions options;
    options.rank = rank;
    options.size = static_cast<int>(houses_.size());
    options.rendezvous = "local://town";
    options.transport = "sim";
    options.world = &world_;
    auto fabric = net::Fabric::join(options, heard(rank));
    fabric->start();
    for (uint64_t tag = 0; tag < 20; ++tag) {
      fabric->send(Rank(world_.random().below(houses_.size())), filled(tag, 10));
      pass(world_.random().between(1us, 1ms));
    }
    pass(10s);
  }

  World& world_;
  std::vector<House> houses_;
};

struct Outcome {
  uint64_t hash = 0;
  std::string trace;
  size_t messages = 0, losses = 0;
};

Outcome a_day_in_town(uint64_t seed, int size) {
  World world(seed);
  Outcome outcome;
  world.run([&] {
    Town town(world, size);
    town.pass(5ms);
    std::set<int> victims;
    while (victims.size() < 3) victims.insert(static_cast<int>(world.random().below(size)));
    for (int victim : victims) town.crash(victim);
    town.pass(world.random().between(1us, 10ms));
    for (int victim : victims) town.move_in(victim);
    town.pass(1s);
    for (int rank = 0; rank < size; ++rank) {
      outcome.messages += town.heard(rank).messages();
      outcome.losses += town.heard(rank).losses();
    }
  });
  outcome.hash = world.trace_hash();
  outcome.trace = world.trace_text();
  return outcome;
}

TEST(SimulatedFabric, SeedReplaysWholeFabricsThroughCrashesAndRestarts) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto first = a_day_in_town(seed, 12), second = a_day_in_town(seed, 12);

    EXPECT_EQ(first.hash, second.hash);
    EXPECT_EQ(first.trace, second.trace);
    EXPECT_GT(first.messages, 12u * 10);
    EXPECT_GT(first.losses, 0u);
  }
}

TEST(SimulatedFabric, EverySeedComesToAnEnd) {
  std::set<uint64_t> hashes;
  const uint64_t count = number_of_seeds(50);
  for (uint64_t seed = 100; seed < 100 + count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    hashes.insert(a_day_in_town(seed, 6).hash);
  }
  EXPECT_EQ(hashes.size(), count) << "and no two days are alike";
}

TEST(SimulatedFabric, TwoHundredWorkersMeetAndTalk) { EXPECT_GE(a_day_in_town(7, 200).messages, 200u * 15); }

TEST(SimulatedFabric, MissingMemberIsNamedInSimulatedTime) {
  World world(1);
  world.run([&] {
    Recorder heard;
    net::FabricOptions options;
    options.rank = 0;
    options.size = 2;
    options.rendezvous = "local://alone";
    options.transport = "sim";
    options.world = &world;
    const auto before = world.runtime().now();
    try {
      (void)net::Fabric::join(options, heard);
      FAIL() << "nobody else came";
    } catch (const Timeout& error) {
      EXPECT_NE(std::string(error.what_without_backtrace()).find("rank 1"), std::string::npos) << error.what();
    }
    EXPECT_GE(world.runtime().now() - before, options.join_timeout);
  });
}

}  // namespace
}  // namespace farad::test
