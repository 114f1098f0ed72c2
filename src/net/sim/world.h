#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/ids.h"
#include "net/sim/faults.h"
#include "net/sim/network.h"
#include "net/sim/scheduler.h"
#include "wire/buffer_pool.h"

namespace farad::net::sim {

/// A world of workers in one process in which one seed decides everything: who runs when, what time it is, how long
/// messages take, what breaks. The same seed and program give the same run, to the last step.
///
///     sim::World world(seed);
///     world.run([&] {
///       auto one = world.start_worker(Rank(1), [&] { ... Fabric::join({.transport = "sim", .world = &world}, sink) ...
///       }); world.crash(Rank(1));
///     });
///
/// Outlives everything that lives in it. Except for run() and what reads the outcome, members are for simulated threads
/// and for events.
class World {
 public:
  explicit World(uint64_t seed, const Faults& = {}, std::chrono::nanoseconds give_up_after = std::chrono::hours(1));

  /// Runs `first` as the first simulated thread; returns when all threads have ended. Throws what the first one to fail
  /// threw, or farad::Error with what every thread waits for if nobody can run any more. Once for each World.
  void run(std::function<void()> first);

  /// Time and threads of this world.
  base::Runtime& runtime() { return scheduler_; }
  /// A thread that is the process of the worker with this rank: threads it starts belong to it, and share its fate.
  std::unique_ptr<base::Thread> start_worker(base::Rank, std::function<void()> run);

  /// Ends a worker started with start_worker() as kill -9 does. It sends nothing more; its threads are unwound by an
  /// exception out of their waits. Another start_worker() of that rank is its restart.
  void crash(base::Rank, Death = Death::OfProcess);
  /// As SIGSTOP and SIGCONT do.
  void stop(base::Rank);
  void resume(base::Rank);
  /// Nothing passes between the two sets for that long; what was sent waits, unless a connection is given up meanwhile.
  void partition(std::set<base::Rank> here, std::set<base::Rank> there, std::chrono::nanoseconds span);
  void break_connection(base::Rank, base::Rank);
  /// Every delay between the two is this many times longer from now on.
  void slow_down(base::Rank, base::Rank, double factor);

  /// Runs `event` that much later. It may do any of the above, and must not wait.
  void after(std::chrono::nanoseconds, std::function<void()> event);
  /// Further decisions of the seed, for the program under test.
  Random& random() { return scheduler_.random(); }

  uint64_t seed() const { return seed_; }
  /// Of everything that happened so far: equal for equal runs.
  uint64_t trace_hash() const { return scheduler_.trace().hash(); }
  /// The last few thousand steps, a line each.
  std::string trace_text() const { return scheduler_.trace().text(); }

  // For the pieces of the fabric that live in this world.
  Scheduler& scheduler() { return scheduler_; }
  Network& network() { return network_; }
  const std::shared_ptr<wire::BufferPool>& buffers() const { return buffers_; }

 private:
  Process process_of(base::Rank) const;

  const uint64_t seed_;
  const std::shared_ptr<wire::BufferPool> buffers_;
  Scheduler scheduler_;
  Network network_;
  std::map<base::Rank, Process> processes_;  // the latest of each rank
};

}  // namespace farad::net::sim
