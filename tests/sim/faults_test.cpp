#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "sim/simulated_worker.h"
#include "suites/seeds.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using base::Incarnation;
using base::Rank;
using net::sim::Death;
using net::sim::Faults;
using net::sim::World;

constexpr Rank zero{0}, one{1};
constexpr auto lost_after = 300ms;

/// Worker 0 is the test's own thread, worker 1 a process that can be crashed and stopped.
class Pair {
 public:
  explicit Pair(World& world) : world_(world), here_(world, zero, lost_after) { start(); }
  ~Pair() { world_.crash(one); }

  SimulatedWorker& here() { return here_; }
  /// Worker 0 learns where worker 1 is by itself, not by the greeting.
  void introduce() { here_.meet(one, address_there_); }
  Recorder& there() { return *heard_there_; }

  /// Worker 1 begins a (new) life: greets with tag 100 and then answers every message with its tag.
  void start() {
    thread_.reset();
    auto begun = world_.runtime().make_parker();
    thread_ = world_.start_worker(one, [this, begun = begun.get()] {
      SimulatedWorker worker(world_, one, lost_after);
      heard_there_ = &worker.heard();
      address_there_ = worker.address();
      worker.heard().at_message = [&](net::Peer from, const wire::Message& message) {
        (void)worker.send(from.rank, message.tag);
      };
      worker.meet(zero, here_);
      (void)worker.send(zero, 100);
      begun->unpark();
      world_.runtime().make_parker()->park(base::never);
    });
    begun->park(base::never);
  }

  void wait_for_greeting(size_t so_many_messages = 1) {
    ASSERT_TRUE(here_.wait_until([&](const Recorder& r) { return r.messages() == so_many_messages; }));
  }

 private:
  World& world_;
  SimulatedWorker here_;
  Recorder* heard_there_ = nullptr;
  std::string address_there_;
  std::unique_ptr<base::Thread> thread_;
};

void in_a_world(uint64_t seed, const Faults& faults, const std::function<void(World&, Pair&)>& test) {
  World world(seed, faults);
  world.run([&] {
    Pair pair(world);
    pair.wait_for_greeting();
    test(world, pair);
  });
}

std::optional<Incarnation> lost_of(const Recorder& heard, Rank rank) {
  for (const auto& entry : heard.history()) {
    if (entry.what == Recorder::Heard::What::Lost && entry.peer.rank == rank) return entry.peer.incarnation;
  }
  return {};
}

bool heard_a_loss(const Recorder& heard) { return heard.losses() == 1; }

TEST(SimulatedFaults, CrashOfAProcessIsHeardSoon) {
  in_a_world(1, {}, [](World& world, Pair& pair) {
    const auto before = world.runtime().now();
    world.crash(one);

    ASSERT_TRUE(pair.here().wait_until(heard_a_loss));

    EXPECT_LT(world.runtime().now() - before, lost_after / 10);
  });
}

TEST(SimulatedFaults, CrashOfAMachineIsHeardOnceItWasSilentForLostAfter) {
  in_a_world(1, {}, [](World& world, Pair& pair) {
    const auto before = world.runtime().now();
    world.crash(one, Death::OfMachine);

    ASSERT_TRUE(pair.here().wait_until(heard_a_loss));

    EXPECT_GE(world.runtime().now() - before, lost_after);
    EXPECT_LT(world.runtime().now() - before, 2 * lost_after);
  });
}

TEST(SimulatedFaults, StoppedWorkerIsLostAndLearnsOfItWhenItGoesOn) {
  in_a_world(2, {}, [](World& world, Pair& pair) {
    const auto before = world.runtime().now();
    world.stop(one);
    ASSERT_TRUE(pair.here().wait_until(heard_a_loss));
    EXPECT_LT(world.runtime().now() - before, 2 * lost_after);
    EXPECT_EQ(pair.there().losses(), 0u);

    world.resume(one);
    pair.here().idle(10ms);

    EXPECT_EQ(pair.there().losses_of(zero), 1u);
  });
}

TEST(SimulatedFaults, WorkerStoppedForAMomentIsNotLost) {
  in_a_world(3, {}, [](World& world, Pair& pair) {
    world.stop(one);
    ASSERT_TRUE(pair.here().send(one, 1).status.ok());
    pair.here().idle(lost_after / 2);
    EXPECT_EQ(pair.here().heard().messages(), 1u);

    world.resume(one);

    EXPECT_TRUE(pair.here().wait_until([](const Recorder& r) { return r.messages() == 2; }));
    EXPECT_EQ(pair.here().heard().losses(), 0u);
  });
}

TEST(SimulatedFaults, ShortPartitionOnlyDelays) {
  in_a_world(4, {}, [](World& world, Pair& pair) {
    const auto before = world.runtime().now();
    world.partition({zero}, {one}, lost_after / 2);
    ASSERT_TRUE(pair.here().send(one, 1).status.ok());

    ASSERT_TRUE(pair.here().wait_until([](const Recorder& r) { return r.messages() == 2; }));

    EXPECT_GE(world.runtime().now() - before, lost_after / 2);
    EXPECT_EQ(pair.here().heard().losses(), 0u);
  });
}

TEST(SimulatedFaults, LongPartitionIsALossOnBothSidesAndNothingOfItArrivesLater) {
  in_a_world(5, {}, [](World& world, Pair& pair) {
    world.partition({zero}, {one}, 10 * lost_after);
    const auto sent = pair.here().send(one, 1);

    ASSERT_TRUE(pair.here().wait_until(heard_a_loss));
    EXPECT_EQ(lost_of(pair.here().heard(), one), sent.incarnation);
    pair.here().idle(20 * lost_after);

    EXPECT_EQ(pair.there().losses_of(zero), 1u);
    EXPECT_EQ(pair.here().heard().messages(), 1u) << "only the greeting";
    EXPECT_EQ(pair.there().messages(), 0u);
  });
}

TEST(SimulatedFaults, AfterABrokenConnectionTheNextSendHasANewIncarnation) {
  in_a_world(6, {}, [](World& world, Pair& pair) {
    const auto first = pair.here().send(one, 1);
    world.break_connection(zero, one);
    ASSERT_TRUE(pair.here().wait_until(heard_a_loss));

    const auto second = pair.here().send(one, 2);

    EXPECT_GT(second.incarnation, first.incarnation);
    ASSERT_TRUE(pair.here().wait_until([](const Recorder& r) { return r.messages() == 2; }));
    EXPECT_EQ(pair.here().heard().history().back().message.tag, 2u);
    EXPECT_EQ(pair.here().heard().history().back().peer.incarnation, second.incarnation);
    EXPECT_EQ(pair.there().losses_of(zero), 1u);
  });
}

TEST(SimulatedFaults, RestartedWorkerIsHeardAsANewIncarnation) {
  in_a_world(7, {}, [](World& world, Pair& pair) {
    world.crash(one, Death::OfMachine);
    pair.start();  // Comes back before anybody noticed.

    pair.wait_for_greeting(2);

    const auto& history = pair.here().heard().history();
    ASSERT_EQ(history.size(), 3u);
    EXPECT_EQ(history[1].what, Recorder::Heard::What::Lost) << "the old life ends before the new one is heard";
    EXPECT_EQ(history[1].peer, history[0].peer);
    EXPECT_GT(history[2].peer.incarnation, history[0].peer.incarnation);
    ASSERT_TRUE(pair.here().send(one, 5).status.ok());
    EXPECT_TRUE(pair.here().wait_until([](const Recorder& r) { return r.messages() == 3; }));
  });
}

TEST(SimulatedFaults, SendToADeadWorkerIsALossOfItsOwn) {
  in_a_world(8, {}, [](World& world, Pair& pair) {
    world.crash(one);
    ASSERT_TRUE(pair.here().wait_until(heard_a_loss));

    const auto sent = pair.here().send(one, 1);

    ASSERT_TRUE(sent.status.ok());
    ASSERT_TRUE(pair.here().wait_until([](const Recorder& r) { return r.losses() == 2; }));
    EXPECT_EQ(pair.here().heard().history().back().peer.incarnation, sent.incarnation);
  });
}

TEST(SimulatedFaults, SlowLinkIsSlow) {
  in_a_world(9, {}, [](World& world, Pair& pair) {
    world.slow_down(one, zero, 1000);
    const auto before = world.runtime().now();
    ASSERT_TRUE(pair.here().send(one, 1).status.ok());

    ASSERT_TRUE(pair.here().wait_until([](const Recorder& r) { return r.messages() == 2; }));

    EXPECT_GE(world.runtime().now() - before, 1000 * 2 * Faults().least_delay);
  });
}

TEST(SimulatedFaults, MessagesOvertakeEachOtherOnlyWhereAsked) {
  for (bool reorder : {true, false}) {
    Faults faults;
    faults.reorder = reorder;
    in_a_world(10, faults, [&](World&, Pair& pair) {
      std::vector<uint64_t> sent, heard;
      for (uint64_t tag = 1; tag <= 50; ++tag) {
        ASSERT_TRUE(pair.here().send(one, tag).status.ok());
        sent.push_back(tag);
      }
      ASSERT_TRUE(pair.here().wait_until([](const Recorder& r) { return r.messages() == 51; }));
      for (const auto& entry : pair.there().history()) heard.push_back(entry.message.tag);

      EXPECT_EQ(heard != sent, reorder);
      EXPECT_EQ(std::set(heard.begin(), heard.end()), std::set(sent.begin(), sent.end()));
    });
  }
}

// The contract, under whatever the seed does: every message once, or its incarnation is lost, on both sides.
TEST(SimulatedFaults, EveryMessageArrivesOnceOrItsIncarnationIsLost) {
  for (uint64_t seed = 0, count = number_of_seeds(200); seed < count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Faults faults;
    faults.breaks = 0.05;
    faults.stalls = 0.05;
    World world(seed, faults);
    world.run([&] {
      Pair pair(world);
      pair.introduce();
      std::map<uint64_t, Incarnation> sent;
      for (uint64_t tag = 1; tag <= 40; ++tag) {
        if (world.random().chance(0.1)) world.partition({zero}, {one}, world.random().between(1ms, 1000ms));
        if (world.random().chance(0.1)) world.break_connection(one, zero);
        sent[tag] = pair.here().send(one, tag).incarnation;
        if (world.random().chance(0.3)) pair.here().idle(world.random().between(10us, 10ms));
      }
      pair.here().idle(1min);

      std::map<uint64_t, int> arrived;
      for (const auto& entry : pair.there().history()) {
        if (entry.what == Recorder::Heard::What::Message) ++arrived[entry.message.tag];
      }
      std::map<Incarnation, int> lost;
      for (const auto& entry : pair.here().heard().history()) {
        if (entry.what == Recorder::Heard::What::Lost) {
          ++lost[entry.peer.incarnation];
        } else {
          EXPECT_EQ(lost.count(entry.peer.incarnation), 0u) << "nothing is heard of a lost incarnation";
        }
      }
      for (const auto& [incarnation, times] : lost) EXPECT_EQ(times, 1);
      for (const auto& [tag, incarnation] : sent) {
        EXPECT_LE(arrived[tag], 1);
        EXPECT_TRUE(arrived[tag] == 1 || lost.count(incarnation) == 1) << "tag " << tag;
      }
    });
  }
}

}  // namespace
}  // namespace farad::test
