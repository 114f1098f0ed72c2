#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/runtime.h"
#include "net/sim/random.h"
#include "net/sim/trace.h"

namespace farad::net::sim {

/// Threads that live, stop and die together. A thread belongs to the process of whoever started it.
enum class Process : uint32_t { Harness = 0 };

/// Time and threads as one seed wants them.
///
/// Every simulated thread is a real one, but exactly one of them holds the baton and runs. It passes the baton on where
/// it waits or ends; among those that could go on, the seed picks. Nobody is interrupted elsewhere, so what a thread
/// does under a lock is never split. The clock is a number: it moves a little with every switch and every look at it
/// (so that loops which wait for a time end), and leaps to the next event when nobody can run.
///
/// Except run() and the destructor, everything is called by simulated threads only.
class Scheduler final : public base::Runtime {
 public:
  /// `give_up_after`: simulated time after which run() reports that the world does not come to an end.
  Scheduler(uint64_t seed, base::Duration give_up_after);
  ~Scheduler() override;

  /// Runs `first` as the first simulated thread; returns when all have ended. Once only. Rethrows the first exception
  /// that left a simulated thread; throws farad::Error if no thread could ever run again, saying what each waits for.
  /// In both cases all others are unwound first.
  void run(std::function<void()> first);

  base::TimePoint now() const override;
  std::unique_ptr<base::Parker> make_parker() override { return make_parker("a parker"); }
  /// The same with a name for the report of a deadlock.
  std::unique_ptr<base::Parker> make_parker(std::string name);
  std::unique_ptr<base::Thread> start(std::string name, std::function<void()> run) override;
  std::unique_ptr<base::Thread> start_process(Process, std::string name, std::function<void()> run);

  /// A process of its own for start_process().
  Process make_process();
  /// Of the thread that asks.
  Process current_process() const;
  /// Its threads are unwound, by an exception out of their waits, and never do anything else again. Returns also if it
  /// is the caller's own; the caller's next wait throws then.
  void kill(Process);
  /// Its threads do not run until thaw().
  void freeze(Process);
  void thaw(Process);
  bool frozen(Process) const;

  /// Runs `event` at that time, in nobody's name: it may wake threads, not wait.
  void at(base::TimePoint when, std::function<void()> event);

  Random& random() { return random_; }
  Trace& trace() { return trace_; }
  const Trace& trace() const { return trace_; }

 private:
  struct Task;
  class SimParker;
  class SimThread;
  using Moment = std::pair<base::TimePoint, uint64_t>;  // when, and then in the order of asking
  enum class Wait { Interruptible, Join };

  struct ProcessState {
    bool frozen = false;
    bool dying = false;
    std::vector<Task*> held_back;  // Ready, but frozen.
  };

  Task& current() const;
  ProcessState& state(Process process) { return processes_[static_cast<size_t>(process)]; }
  bool wait(Task&, base::TimePoint deadline, Wait, const std::string& what);
  void wake(Task&);
  void make_ready(Task&);
  void pass_baton(Task& from);
  void body(Task&);
  Task* choose();
  void run_due_events();
  void give_up(const std::string& why);
  void kill_all();
  [[noreturn]] void abort_with(const std::string& why) const;
  std::string who_waits_for_what() const;

  const base::Duration give_up_after_;

  // All of it belongs to whoever holds the baton.
  Random random_;
  Trace trace_;
  mutable base::TimePoint now_{};
  uint64_t next_moment_ = 0;
  std::map<Moment, std::function<void()>> events_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<Task*> ready_;
  std::vector<ProcessState> processes_;
  size_t living_ = 0;
  bool in_event_ = false;
  std::exception_ptr failure_;  // The first that left a thread.
  std::exception_ptr no_end_;   // Set once given up.
  std::binary_semaphore all_ended_{0};
};

}  // namespace farad::net::sim
