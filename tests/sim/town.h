#pragma once

#include <farad/rref.h>
#include <farad/worker.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "sim/simulation.h"

namespace farad::test {

/// Neither copied nor sent.
class Thing {
 public:
  Thing(int64_t value, std::shared_ptr<int> alive) : value_(value), alive_(std::move(alive)) { ++*alive_; }
  ~Thing() { --*alive_; }
  Thing(const Thing&) = delete;

  int64_t value() const { return value_; }

 private:
  const int64_t value_;
  const std::shared_ptr<int> alive_;
};
using Owned = std::unique_ptr<Thing>;
using Ref = RRef<Owned>;

/// One drawn program, while it runs. Remote functions draw from the seed as well, so all of it is here.
class Town {
 public:
  struct Trouble {
    bool any = false;       ///< workers crash, connections break: every call may fail
    bool restarts = false;  ///< and workers come back
  };

  Town(uint64_t seed, Simulation::Options options, Trouble trouble)
      : simulation_(seed, std::move(options)),
        trouble_(trouble),
        stashes_(static_cast<size_t>(simulation_.size())),
        things_(static_cast<size_t>(simulation_.size())),
        done_(static_cast<size_t>(simulation_.size())) {}

  void run();

  Simulation& simulation() { return simulation_; }
  net::sim::Random& random() { return simulation_.random(); }
  int anybody() { return static_cast<int>(random().below(static_cast<uint64_t>(simulation_.size()))); }
  bool chance(double p) { return random().chance(p); }
  void dawdle();

  uint64_t new_call() {
    runs_.push_back(0);
    return runs_.size() - 1;
  }
  void ran(uint64_t call) { ++runs_[call]; }
  Owned make(int rank, int64_t value) { return std::make_unique<Thing>(value, things_[rank]); }
  /// Where a worker's functions keep references for a while.
  std::deque<Ref>& stash(int rank) { return stashes_[rank]; }
  /// Its program has ended; now it only waits for the others.
  bool done(int rank) const { return done_[rank]; }

  /// A few random steps at `worker`.
  void act(Worker& worker, int64_t depth, int steps);
  uint64_t results() const { return results_; }

 private:
  struct Promised {
    uint64_t call;
    Future<int64_t> value;
    int64_t expected;
    bool may_fail;
  };
  struct Hands {  // What one round of steps has in hand.
    std::vector<Ref> references;
    std::vector<Promised> promised;
  };

  void live(Worker& worker);
  void conduct();
  void step(Worker& worker, int64_t depth, Hands& hands);
  void call(Worker& worker, int64_t depth, Hands& hands);
  void use(Worker& worker, Hands& hands);
  /// What `get` gives must be `expected`, unless it throws an error that has a name, where that may be.
  void expect(uint64_t call, int64_t expected, bool may_fail, const std::function<int64_t()>& get);

  Simulation simulation_;
  const Trouble trouble_;
  std::vector<int> runs_;  // By call.
  std::vector<std::deque<Ref>> stashes_;
  std::vector<std::shared_ptr<int>> things_;  // That live, by rank; what was in a crashed process counts no more.
  std::vector<bool> done_;
  uint64_t results_ = 0;
};

}  // namespace farad::test
