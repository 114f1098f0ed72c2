#pragma once

#include <farad/worker.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/sim/world.h"

namespace farad::test {

/// Workers in one simulated world, each in a process of its own: the same program, and what a seed does to it.
///
///     Simulation simulation(seed, {.size = 3});
///     simulation.run([&](Worker& worker) { ... });  // on each of them
///
/// Everything but the constructor and run() is for simulated threads: programs, remote functions, the conductor.
class Simulation {
 public:
  struct Options {
    int size = 3;
    net::sim::Faults faults = {};
    WorkerOptions worker = {.threads = 2};  ///< rank, size and where they meet are set for each
  };
  using Program = std::function<void(Worker&)>;

  Simulation(uint64_t seed, Options options);
  Simulation(const Simulation&) = delete;

  /// Runs `program` on each worker, where it is Worker::current(), and closes it; beside them `conduct`, which may
  /// crash some and start them again. Returns when all threads of the world have ended. Throws what World::run throws.
  /// That a peer was lost is no failure of close(); all that leaves a program is.
  void run(Program program, std::function<void()> conduct = {});

  int size() const { return options_.size; }
  net::sim::World& world() { return world_; }
  net::sim::Random& random() { return world_.random(); }

  /// Lets that much simulated time pass.
  void pass(std::chrono::nanoseconds span);
  /// True as soon as `done` is, which is looked at from time to time; false after minutes of simulated time.
  bool eventually(const std::function<bool()>& done);

  void crash(int rank, net::sim::Death death = net::sim::Death::OfProcess);
  /// Of one that has crashed: the program runs from its beginning.
  void restart(int rank);
  /// Whether it was started and has neither crashed nor ended.
  bool alive(int rank) const { return places_[rank].alive; }

 private:
  struct Place {
    std::unique_ptr<base::Thread> process;
    bool alive = false;
    uint64_t life = 0;
  };
  void start(int rank);
  void live(int rank, bool again);

  net::sim::World world_;
  const Options options_;
  Program program_;
  std::vector<Place> places_;
};

}  // namespace farad::test
