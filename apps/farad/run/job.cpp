#include "run/job.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "run/descendants.h"
#include "run/job_environment.h"
#include "run/worker_process.h"

namespace farad::run {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int timed_out = 124;  // as timeout(1) has it

std::string seconds(milliseconds span) {
  auto text = std::to_string(static_cast<double>(span.count()) / 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

}  // namespace

Job::Job(RunOptions options, const base::Environment& user, const sigset_t& signals, const sigset_t& original_mask,
         base::Fd front)
    : options_(std::move(options)),
      user_(user),
      original_mask_(original_mask),
      signals_(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)),
      front_(std::move(front)),
      streams_(options_, !user.has(base::Var::NoColor)) {}

int Job::run() {
  if (start_workers() && options_.timeout.count() > 0) timeout_at_ = Clock::now() + options_.timeout;
  reap();
  // Once the front is gone nobody waits for output either; one who does not read it must not keep us.
  while (!childless_ || !(streams_.done() || !front_)) {
    wait_for_events();
    check_clocks();
  }
  return code_;
}

bool Job::start_workers() {
  JobEnvironment environment;
  if (const auto status = make_job_environment(options_.workers, user_, environment); !status.ok()) {
    stop(SIGTERM, 1, status.message());
    return false;
  }
  for (int rank = 0; rank < options_.workers; ++rank) {
    WorkerProcess worker;
    int code = 0;
    const auto status = start({.program = options_.program,
                               .environment = environment_of(rank, environment, ::environ),
                               .keeps_stdin = rank == 0,
                               .signal_mask = original_mask_},
                              worker, code);
    if (!status.ok()) {
      stop(SIGTERM, code, status.message());
      return false;
    }
    ranks_[worker.pid] = rank;
    streams_.add(rank, std::move(worker.out), std::move(worker.err));
  }
  return true;
}

void Job::wait_for_events() {
  std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}, {front_.get(), POLLIN, 0}};
  streams_.watch(polled);

  const auto until = std::min({timeout_at_, kill_at_, streams_.deadline()});
  int wait_ms = -1;
  if (until != TimePoint::max()) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
    wait_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
  }
  // Nothing announces that a dying process has left a child to us; so look again soon.
  if (killing_ && !childless_) wait_ms = 20;
  if (::poll(polled.data(), polled.size(), wait_ms) < 0) return;

  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) on_signal(info);
  if (polled[1].revents != 0) {
    // Whoever the user sees was killed without a word: nobody waits for the workers, and nobody will stop them later.
    front_.reset();
    stop(SIGKILL, 128 + SIGKILL, "");
    kill_now();
  }
  streams_.handle(polled, Clock::now());
  if (streams_.error() != 0) on_unwritable_output(streams_.error());
}

void Job::on_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGCHLD) return reap();

  if (signal == SIGUSR1 || signal == SIGUSR2) {
    signal_descendants(signal);
    return;
  }
  const auto now = Clock::now();
  if (asked_at_ == TimePoint::min()) {
    asked_at_ = now;
    // A terminal sends to the whole foreground group, where the workers are too. Twice is not once: Ctrl-C again means
    // "at once" to many programs.
    stop(signal, 128 + signal, "", info.ssi_code == SI_KERNEL);
  } else if (now - asked_at_ > std::chrono::seconds(1)) {
    kill_now();  // Asked again. (At once after the first it is the same request, sent to us and to our group.)
  }
}

void Job::reap() {
  struct Ended {
    pid_t pid;
    int rank;
    Outcome outcome;
  };
  std::optional<Ended> first;
  int status = 0;
  pid_t pid = 0;
  while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
    const auto worker = ranks_.find(pid);
    if (worker == ranks_.end()) continue;  // A worker's child that outlived it.
    const Ended ended{pid, worker->second, Outcome(status)};
    ranks_.erase(worker);
    if (ended.outcome.success()) continue;
    // Of those found dead at one time, one that crashed goes before one that merely gave up: losing the first is what
    // makes the second give up.
    if (!first || (ended.outcome.signalled() && !first->outcome.signalled())) first = ended;
  }
  if (first) on_first_failure(first->rank, first->pid, first->outcome);
  if (pid < 0) {
    childless_ = true;
    kill_at_ = timeout_at_ = TimePoint::max();
    streams_.expect_no_more();
  } else if (ranks_.empty()) {
    stop(SIGTERM, 0, "");  // Only processes that the workers left behind.
  }
  // A worker may have started one between our look at its children and its end.
  if (!childless_ && stop_signal_ != 0 && !killing_) ask_to_end();
}

void Job::on_first_failure(int rank, pid_t pid, const Outcome& outcome) {
  std::string reason =
      "[run] rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + ") failed first: " + outcome.text();
  if (!ranks_.empty()) reason += "; stopping the other " + std::to_string(ranks_.size());
  stop(SIGTERM, outcome.code(), reason);
}

void Job::on_unwritable_output(int error) {
  // That nobody reads any more ends any program in a pipeline, and without a word.
  if (error == EPIPE) return stop(SIGTERM, 128 + SIGPIPE, "");
  stop(SIGTERM, 1, std::string("[run] cannot write the workers' output: ") + std::strerror(error) + "; stopping them");
}

void Job::check_clocks() {
  const auto now = Clock::now();
  if (now >= timeout_at_) {
    timeout_at_ = TimePoint::max();
    stop(SIGTERM, timed_out,
         "[run] " + std::to_string(ranks_.size()) + " of " + std::to_string(options_.workers) +
             " workers not done after " + seconds(options_.timeout) + " (--timeout); stopping them");
  }
  if (killing_ && !childless_) {
    kill_now();
  } else if (now >= kill_at_) {
    streams_.note("[run] still running " + seconds(options_.grace) + " after they were asked to end; killing them");
    kill_now();
  }
}

void Job::stop(int signal, int code, const std::string& reason, bool group_has_it) {
  if (stop_signal_ != 0) return;
  stop_signal_ = signal;
  code_ = code;
  if (!reason.empty()) streams_.note(reason);
  kill_at_ = Clock::now() + options_.grace;
  ask_to_end(group_has_it);
}

void Job::ask_to_end(bool group_has_it) {
  const pid_t group = ::getpgrp();
  signal_descendants(stop_signal_, [&](const ProcessInfo& process) {
    const bool newcomer = asked_.emplace(process.pid, process.started).second;
    return newcomer && !(group_has_it && process.group == group);
  });
}

void Job::kill_now() {
  killing_ = true;
  kill_at_ = TimePoint::max();
  signal_descendants(SIGKILL);
}

}  // namespace farad::run
