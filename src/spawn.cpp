#include <c10/util/ScopeExit.h>
#include <farad/spawn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/thread_census.h"
#include "net/machine.h"
#include "rpc/incall.h"
#include "worker_core.h"

namespace farad {
namespace {

using namespace std::chrono_literals;

/// Joins, runs and closes. A failure is reported before the worker ends: its peers fail then, too, but were not first.
void run_member(const std::function<void(Worker&)>& fn, WorkerOptions options,
                const std::function<void(std::exception_ptr)>& report) {
  try {
    Worker worker = Worker::join(std::move(options));
    try {
      {
        detail::WorkerCore::Scope scope(detail::WorkerCore::of(worker));
        fn(worker);
      }
      worker.close();
    } catch (...) {
      report(std::current_exception());
    }
  } catch (...) {
    report(std::current_exception());
  }
}

/// How long those may go on who did not fail, once somebody has: they see its loss, and may have something to do.
constexpr auto time_to_end = 10s;

void check_size(int n) {
  if (n <= 0) throw Error("[spawn] a group needs at least one worker, not " + std::to_string(n));
}

/// Threads that have ended may have left something, too; of those it is known only where a Worker has had them.
void check_may_fork() {
  const int threads = base::threads_started();
  if (threads == 0 && !detail::WorkerCore::has_joined()) return;
  const auto what = detail::WorkerCore::has_joined()
                        ? "a Worker has joined in this process, and what its threads have"
                        : "this process has started " + std::to_string(threads) +
                              (threads == 1 ? " thread, and what it has" : " threads, and what they have");
  throw Error("[spawn] " + what +
              " begun would be left half done in a fork: call spawn before libtorch has run in parallel, a Worker has "
              "joined or a thread was started; or use spawn_threads");
}

/// A forked process has a copy of what was not written yet, and one that ends by _exit() writes nothing more.
void flush_output() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

/// What a child tells when it is done.
constexpr char all_went_well = '\1';

/// What a child tells of its failure before it ends: type, text and hops, each ended by a zero.
void tell(int pipe, const rpc::Failure& failure) {
  constexpr size_t most_text = 16'384;  // Nobody reads before we have ended, so it must fit into the pipe.
  std::string bytes;
  const auto add = [&](const std::string& part) { bytes.append(part.c_str()).push_back('\0'); };
  add(failure.type);
  add(failure.text.substr(0, most_text));
  for (const auto& hop : failure.hops) {
    if (bytes.size() + hop.size() < 2 * most_text) add(hop);
  }
  [[maybe_unused]] const ssize_t n = ::write(pipe, bytes.data(), bytes.size());
}

struct Child {
  std::string name;
  pid_t pid;
  base::Fd said;        ///< what it tells
  base::Fd ended = {};  ///< readable once it has
};

/// Waits until one of them has ended, or for that long.
void await_an_end(const std::vector<Child>& children, std::optional<std::chrono::milliseconds> span) {
  std::vector<pollfd> watched;
  for (const auto& child : children) watched.push_back({child.ended.get(), POLLIN, 0});
  ::poll(watched.data(), watched.size(), span ? static_cast<int>(span->count()) : -1);
}

/// How likely a failure is what the others come from.
enum class Blame { Cause, EndedAsIfWell, LostAnother };

struct Failed {
  std::exception_ptr error;
  Blame blame = Blame::Cause;
};

/// Of one that has ended. Does not wait: a program that it started may have the other end.
std::string told_by(int pipe) {
  std::string bytes;
  char some[4096];
  for (ssize_t n; (n = ::read(pipe, some, sizeof(some))) > 0;) bytes.append(some, static_cast<size_t>(n));
  return bytes;
}

std::vector<std::string> parts_of(const std::string& bytes) {
  std::vector<std::string> parts;
  for (size_t at = 0, end; (end = bytes.find('\0', at)) != bytes.npos; at = end + 1) {
    parts.push_back(bytes.substr(at, end - at));
  }
  return parts;
}

Failed lost(const Child& child, const std::string& how) {
  return {std::make_exception_ptr(PeerLost("[spawn] " + child.name + how))};
}

/// A member may be lost while another waits for it, or while they are in one backward pass.
bool comes_of_another(const std::string& type) { return type == "farad::PeerLost" || type == "farad::Aborted"; }

std::optional<Failed> failure_of(const Child& child, int status) {
  if (WIFSIGNALED(status)) return lost(child, std::string(" was ended by ") + ::strsignal(WTERMSIG(status)));
  const auto bytes = told_by(child.said.get());
  if (bytes.starts_with(all_went_well)) return {};
  const auto told = parts_of(bytes);
  if (told.size() < 2) {
    auto failed =
        lost(child, " ended with exit code " + std::to_string(WEXITSTATUS(status)) + " before its function returned");
    if (WEXITSTATUS(status) == 0) failed.blame = Blame::EndedAsIfWell;
    return failed;
  }
  std::vector<std::string> hops{"spawn", child.name};
  hops.insert(hops.end(), told.begin() + 2, told.end());
  return Failed{std::make_exception_ptr(RemoteError(std::move(hops), told[0], told[1])),
                comes_of_another(told[0]) ? Blame::LostAnother : Blame::Cause};
}

/// Takes in those that have ended; with WNOHANG as option, without waiting for the others.
void bury(std::vector<Child>& children, std::vector<Failed>& failures, int option) {
  std::erase_if(children, [&](const Child& child) {
    int status = 0;
    pid_t buried = -1;
    // Only our own children: the caller may have others.
    while ((buried = ::waitpid(child.pid, &status, option)) < 0 && errno == EINTR) {
    }
    if (buried == 0) return false;
    if (buried > 0) {
      if (auto failure = failure_of(child, status)) failures.push_back(std::move(*failure));
    } else {
      failures.push_back(lost(child,
                              " has ended, and how is not known: this program ignores SIGCHLD, or waits for all "
                              "its children"));
    }
    return true;
  });
}

void bear(std::vector<Child>& children, const std::function<void(Worker&)>& fn, const WorkerOptions& options) {
  int ends[2];
  FARAD_CHECK(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "[spawn] pipe: ", std::strerror(errno));
  base::Fd said(ends[0]);
  const base::Fd tells(ends[1]);
  const pid_t pid = ::fork();
  FARAD_CHECK(pid >= 0, "[spawn] fork: ", std::strerror(errno), " (see ulimit -u)");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // Nobody is left behind if we are killed.
    run_member(fn, options, [&](std::exception_ptr error) {
      tell(tells.get(), rpc::describe(error));
      flush_output();
      ::_exit(1);
    });
    flush_output();
    [[maybe_unused]] const ssize_t n = ::write(tells.get(), &all_went_well, 1);
    ::_exit(0);
  }
  auto& child = children.emplace_back(options.name.empty() ? "worker" + std::to_string(options.rank) : options.name,
                                      pid, std::move(said));
  child.ended = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  FARAD_CHECK(child.ended, "[spawn] pidfd_open: ", std::strerror(errno));
}

/// Where the children of one spawn meet. The last of them removes it, unless they were killed.
struct MeetingFile {
  std::string path;
  ~MeetingFile() {
    if (!path.empty()) ::unlink(path.c_str());
  }
};

}  // namespace

void spawn(int n, const std::function<void(Worker&)>& fn, WorkerOptions options) {
  check_size(n);
  check_may_fork();
  options.size = n;
  MeetingFile file;
  if (options.rendezvous.empty()) {
    file.path = "/tmp/farad-spawn-" + std::to_string(::getpid()) + "-" + std::to_string(net::new_birth());
    options.rendezvous = "file://" + file.path;
  }
  flush_output();
  std::vector<Child> children;
  std::vector<Failed> failures;
  // Also if one of them cannot be born.
  const auto end_the_others = c10::make_scope_exit([&] {
    for (const auto& child : children) ::kill(child.pid, SIGKILL);
    bury(children, failures, 0);
  });
  for (options.rank = 0; options.rank < n; ++options.rank) bear(children, fn, options);

  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> end;  // Of those who go on when somebody has failed.
  while (!children.empty() && (!end || Clock::now() < *end)) {
    std::optional<std::chrono::milliseconds> span;
    if (end) span = std::max(0ms, std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now()));
    await_an_end(children, span);
    bury(children, failures, WNOHANG);
    if (!failures.empty() && !end) end = Clock::now() + time_to_end;
  }
  if (failures.empty()) return;
  // Not always the first that was seen: a process that ends lets go of what its peers watch some time before it has
  // ended, so one of them may have failed of it by then.
  std::rethrow_exception(std::ranges::min_element(failures, {}, &Failed::blame)->error);
}

void spawn_threads(int n, const std::function<void(Worker&)>& fn, WorkerOptions options) {
  check_size(n);
  options.size = n;
  if (options.rendezvous.empty()) options.rendezvous = "local://spawn-" + std::to_string(net::new_birth());
  base::Mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  const auto note = [&](std::exception_ptr error) {
    base::Lock lock(mutex);
    if (!first) first = error;
  };
  try {
    for (int rank = 0; rank < n; ++rank) {
      threads.emplace_back([&, rank] {
        auto mine = options;
        mine.rank = rank;
        run_member(fn, std::move(mine), note);
      });
    }
  } catch (const std::system_error&) {  // There are no more: those that there are wait for the others, and time out.
    note(std::current_exception());
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace farad
