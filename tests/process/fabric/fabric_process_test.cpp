// What only a process of its own can do to a worker: die, stop, come back.

#include <ATen/ops/full.h>
#include <c10/util/ScopeExit.h>
#include <farad/error.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "process/fabric/footprint.h"
#include "process/fabric/peer.h"
#include "process/nursery.h"
#include "suites/workers.h"
#include "temporary_directory.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using base::Incarnation;
using base::Rank;
using Clock = std::chrono::steady_clock;

constexpr Rank peer{1};

/// Rank 0 here and rank 1 in a process of its own.
class FabricProcess : public testing::TestWithParam<std::string> {
 protected:
  FabricProcess() {}
  ~FabricProcess() override { end(); }

  void begin(Behaviour behaviour, std::chrono::milliseconds lost_after = 3s) {
    prepare(behaviour, lost_after);
    ++meetings_;
    heard_ = std::make_unique<Recorder>();
    bear();
    fabric_ = net::Fabric::join(options_of(plan_, 0), *heard_);
    ASSERT_EQ(fabric_->transport_to(peer), GetParam());
  }
  void prepare(Behaviour behaviour, std::chrono::milliseconds lost_after = 3s) {
    plan_.behaviour = behaviour;
    plan_.lost_after_ms = static_cast<int>(lost_after.count());
    GetParam().copy(plan_.transport, sizeof plan_.transport - 1);
    const std::string rendezvous = "file://" + directory_.path() + "/" + std::to_string(meetings_);
    memset(plan_.rendezvous, 0, sizeof plan_.rendezvous);
    rendezvous.copy(plan_.rendezvous, sizeof plan_.rendezvous - 1);
  }
  void bear() { child_ = Nursery::bear<be_a_peer>(plan_); }
  void kill_child() {
    if (child_ > 0) Nursery::kill(std::exchange(child_, 0));
  }
  void end() {
    kill_child();
    fabric_.reset();
  }

  bool wait_until(std::function<bool(const Recorder&)> done) {
    return heard_->wait_until(fabric_->driver(), fabric_->runtime(), std::move(done));
  }
  bool hears(size_t messages) {
    return wait_until([=](const Recorder& heard) { return heard.messages() >= messages; });
  }
  bool loses(size_t lives) {
    return wait_until([=](const Recorder& heard) { return heard.losses() >= lives; });
  }

  /// All that happens between two workers, once.
  void live() {
    begin(Behaviour::Echo);
    fabric_->start();
    EXPECT_TRUE(hears(1));
    fabric_->send(peer, filled(1, 1 << 20));
    EXPECT_TRUE(hears(2));
    kill_child();
    EXPECT_TRUE(loses(1));
    bear();
    EXPECT_TRUE(hears(3));
    fabric_->send(peer, filled(2, 1 << 20));
    EXPECT_TRUE(hears(4));
    end();
    heard_.reset();
  }

  const TemporaryDirectory directory_;
  int meetings_ = 0;
  PeerPlan plan_;
  pid_t child_ = 0;
  std::unique_ptr<Recorder> heard_;
  std::unique_ptr<net::Fabric> fabric_;
};

TEST_P(FabricProcess, KilledPeerIsLostLongBeforeItsSilenceTells) {
  begin(Behaviour::Echo, 60s);
  fabric_->start();
  ASSERT_TRUE(hears(1));

  const auto before = Clock::now();
  kill_child();

  EXPECT_TRUE(loses(1));
  EXPECT_LT(Clock::now() - before, 5s);
}

TEST_P(FabricProcess, RestartedPeerCanBeTalkedToAgain) {
  begin(Behaviour::Echo);
  fabric_->start();
  ASSERT_TRUE(hears(1));
  const auto first = fabric_->send(peer, tagged(1));
  ASSERT_TRUE(hears(2));
  kill_child();
  ASSERT_TRUE(loses(1));

  bear();
  ASSERT_TRUE(hears(3)) << "it says that it is here";
  const auto second = fabric_->send(peer, tagged(2));

  EXPECT_GT(second, first);
  ASSERT_TRUE(hears(4));
  EXPECT_EQ(heard_->snapshot().back().message.tag, 2u);
}

TEST_P(FabricProcess, StoppedPeerIsLostInTimeAndLearnsThatItWas) {
  constexpr auto lost_after = 300ms;
  begin(Behaviour::Report, lost_after);
  fabric_->start();
  ASSERT_TRUE(hears(1));
  fabric_->send(peer, tagged(1));
  ASSERT_TRUE(hears(2));

  const auto before = Clock::now();
  kill(child_, SIGSTOP);
  ASSERT_TRUE(loses(1));
  const std::chrono::duration<double, std::milli> took = Clock::now() - before;
  std::cout << "lost " << took.count() << " ms after it stopped; lost_after is " << lost_after.count() << " ms\n";
  RecordProperty("milliseconds", std::to_string(took.count()));
  EXPECT_LE(took, 3 * lost_after);
  kill(child_, SIGCONT);

  EXPECT_TRUE(wait_until([](const Recorder& heard) { return heard.history().back().message.tag == i_lost_you; }));
}

TEST_P(FabricProcess, SendersToAStoppedPeerAreNotHeldForEver) {
  begin(Behaviour::Echo, 300ms);
  fabric_->start();
  ASSERT_TRUE(hears(1));
  kill(child_, SIGSTOP);

  try {
    while (heard_->losses() == 0) fabric_->send(peer, filled(0, 10'000), fabric_->runtime().now() + 30s);
  } catch (const PeerLost&) {
  }

  EXPECT_TRUE(loses(1));
}

// The heart of it: a peer that dies at any instant, with messages on their way in both directions.
TEST_P(FabricProcess, PeerKilledAtRandomInstantsLeavesAPrefixAndALoss) {
  const uint64_t seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr int most_lives = 300;
  const auto enough = Clock::now() + 40s;
  live();
  const auto before = Footprint::now();

  begin(Behaviour::Stream);
  std::map<Incarnation, uint64_t> next;  // The driver's.
  std::atomic<uint64_t> heard_of_this_life{0};
  std::atomic<bool> right{true};
  std::ostringstream complaint;
  heard_->keep_messages = false;
  heard_->at_message = [&](net::Peer from, const wire::Message& message) {
    const uint64_t due = next[from.incarnation]++;
    if (message.tag == due && is_stream_message(message)) {
      ++heard_of_this_life;
    } else if (right.exchange(false)) {
      complaint << "life " << from.incarnation << ": heard tag " << message.tag
                << (message.tag == due ? " garbled" : "") << " where " << due << " was due";
    }
  };
  fabric_->start();

  std::atomic<bool> stop{false};
  std::set<Incarnation> sent_to;
  uint64_t tag = 0;
  std::thread sender([&] {
    while (!stop) {
      try {
        sent_to.insert(fabric_->send(peer, stream_message(tag)));
        ++tag;
      } catch (const PeerLost&) {  // Then it was not sent.
      }
    }
  });
  int lives = 0;
  while (lives < most_lives && Clock::now() < enough && right) {
    ++lives;
    const uint64_t due = random() % 8 == 0 ? 0 : random() % 40;
    heard_of_this_life = 0;
    const bool came = wait_until([&](const Recorder&) { return heard_of_this_life >= due || !right; });
    ASSERT_TRUE(came) << "life " << lives;
    kill_child();
    bear();
  }
  ASSERT_TRUE(wait_until(
      [&, before = heard_of_this_life.load()](const Recorder&) { return heard_of_this_life > before + 10; }));
  stop = true;
  sender.join();
  sent_to.insert(fabric_->send(peer, stream_message(tag)));
  const Incarnation alive = *sent_to.rbegin();
  const auto lost_once = [&](const Recorder& heard) {
    std::multiset<Incarnation> lost;
    for (const auto& one : heard.history()) lost.insert(one.peer.incarnation);
    for (const auto& life : sent_to) {
      if (life != alive && lost.count(life) != 1) return false;
    }
    return lost.count(alive) == 0;
  };
  EXPECT_TRUE(wait_until(lost_once)) << "every life but the last is lost, once";
  fabric_->close();

  EXPECT_TRUE(right) << complaint.str();
  std::set<Incarnation> lost;
  for (const auto& heard : heard_->history()) EXPECT_TRUE(lost.insert(heard.peer.incarnation).second);
  for (const auto& [life, messages] : next) EXPECT_TRUE(life == alive || lost.contains(life));
  end();
  heard_.reset();
  EXPECT_EQ(Footprint::now(), before) << "whatever they were doing when they were killed";
  std::cout << lives << " lives, seed " << seed << '\n';
}

TEST_P(FabricProcess, NothingIsLeftBehind) {
  live();  // What libtorch starts on first use is not ours.
  const auto before = Footprint::now();

  live();

  EXPECT_EQ(Footprint::now(), before);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_P(FabricProcess, MemoryStaysFlatOverAHundredThousandMessages) {
  begin(Behaviour::Echo);
  heard_->keep_messages = false;
  fabric_->start();
  ASSERT_TRUE(hears(1));
  size_t sent = 0;
  const auto echo = [&](size_t messages) {
    for (size_t i = 0; i < messages; ++i) {
      fabric_->send(peer, filled(i, i % 100 == 0 ? 20'000 : static_cast<int64_t>(i % 50)));
      ++sent;
      ASSERT_TRUE(sent % 100 != 0 || hears(sent - 50));
    }
    ASSERT_TRUE(hears(sent + 1));
  };
  echo(10'000);
  const size_t here = resident_bytes(getpid()), there = resident_bytes(child_);

  echo(100'000);

  constexpr size_t slack = size_t{8} << 20;
  EXPECT_LT(resident_bytes(getpid()), here + slack);
  EXPECT_LT(resident_bytes(child_), there + slack);
}

TEST_P(FabricProcess, ThirtyTwoProcessesAreTogetherWithinASecondOfTheLastJoin) {
  constexpr int size = 32;
  plan_.size = size;
  std::vector<pid_t> others;
  const auto bury_all = c10::make_scope_exit([&] {
    for (const pid_t child : others) Nursery::kill(child);
  });
  for (plan_.rank = 2; plan_.rank < size; ++plan_.rank) {
    prepare(Behaviour::Echo);
    others.push_back(Nursery::bear<be_a_peer>(plan_));
  }
  plan_.rank = 1;

  const auto before = Clock::now();
  begin(Behaviour::Echo);
  const std::chrono::duration<double, std::milli> took = Clock::now() - before;

  std::cout << size << " processes together " << took.count() << " ms after the last one came\n";
  RecordProperty("milliseconds", std::to_string(took.count()));
  EXPECT_LT(took, 3s);
  fabric_->start();
  EXPECT_TRUE(hears(size - 1)) << "each says that it is here";
}

INSTANTIATE_TEST_SUITE_P(Each, FabricProcess, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace farad::test
