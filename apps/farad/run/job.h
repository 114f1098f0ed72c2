#pragma once

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/fd.h"
#include "run/options.h"
#include "run/outcome.h"
#include "run/streams.h"

namespace farad::run {

/// The workers of one job, from their start to the end of the last process that came of them.
///
/// Runs in a process of its own, which is the subreaper of everything below: see run.cpp. One thread, one poll().
class Job {
 public:
  /// `signals` are blocked and taken from a signalfd; workers start with `original_mask`. `front` reaches its end when
  /// the process that the user sees is gone.
  Job(RunOptions options, const base::Environment& user, const sigset_t& signals, const sigset_t& original_mask,
      base::Fd front);

  /// Returns the code to exit with: 0, or that of what went wrong first.
  int run();

 private:
  using TimePoint = Streams::TimePoint;

  bool start_workers();
  void wait_for_events();
  void on_signal(const signalfd_siginfo& info);
  void reap();
  void on_first_failure(int rank, pid_t pid, const Outcome& outcome);
  void on_unwritable_output(int error);
  void check_clocks();

  /// Asks every process to end, by a signal that those of our group may have already; what does not end within the
  /// grace is killed. Only the first reason counts.
  void stop(int signal, int code, const std::string& reason, bool group_has_it = false);
  /// Those that have not been asked yet.
  void ask_to_end(bool group_has_it = false);
  void kill_now();

  const RunOptions options_;
  const base::Environment& user_;
  const sigset_t original_mask_;
  base::Fd signals_;
  base::Fd front_;
  Streams streams_;

  std::map<pid_t, int> ranks_;                            // of the workers that live
  bool childless_ = false;                                // no process is left below us
  int stop_signal_ = 0;                                   // once the job is being stopped
  std::set<std::pair<pid_t, unsigned long long>> asked_;  // to end: who they are, and since when they live
  bool killing_ = false;
  int code_ = 0;
  TimePoint timeout_at_ = TimePoint::max();
  TimePoint kill_at_ = TimePoint::max();
  TimePoint asked_at_ = TimePoint::min();  // when a signal asked us to stop
};

}  // namespace farad::run
