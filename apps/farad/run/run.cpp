#include "run/run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/fd.h"
#include "run/descendants.h"
#include "run/job.h"
#include "run/outcome.h"

// Two processes: the front, which the user sees, and the keeper below it, which runs the job. Each adopts what is below
// it (PR_SET_CHILD_SUBREAPER), so whichever of them is killed, even by SIGKILL, the other one still finds every process
// that came of the job, the workers' grandchildren included, and ends it. One process alone could not clean up after
// its own kill -9: PR_SET_PDEATHSIG reaches the workers but not what they have started.

namespace farad::run {
namespace {

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  return set;
}

/// Waits for the keeper, handing on what was meant for the job. Returns its wait status.
int wait_for(pid_t keeper, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == keeper) return status;
    }
    siginfo_t info;
    const int signal = ::sigwaitinfo(&signals, &info);
    // What a terminal sends, it sends to the keeper as well.
    if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) ::kill(keeper, signal);
  }
}

void kill_the_rest() {
  do {
    signal_descendants(SIGKILL);
  } while (::waitpid(-1, nullptr, 0) > 0);
}

}  // namespace

int run(const RunOptions& options) {
  const auto signals = handled_signals();
  sigset_t original;
  ::sigprocmask(SIG_BLOCK, &signals, &original);
  ::signal(SIGPIPE, SIG_IGN);

  int ends[2];
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || ::pipe2(ends, O_CLOEXEC) != 0) {
    std::fprintf(stderr, "[run] cannot set up: %s\n", std::strerror(errno));
    return 1;
  }
  base::Fd watched(ends[0]);
  base::Fd held(ends[1]);  // By the front alone, so that the keeper sees it end.

  const pid_t keeper = ::fork();
  if (keeper < 0) {
    std::fprintf(stderr, "[run] cannot fork: %s (see ulimit -u)\n", std::strerror(errno));
    return 1;
  }
  if (keeper == 0) {
    held.reset();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const auto environment = base::Environment::process();
    return Job(options, environment, signals, original, std::move(watched)).run();
  }
  watched.reset();
  const Outcome outcome(wait_for(keeper, signals));
  if (outcome.signalled()) {
    std::fprintf(stderr, "[run] the process that watches the workers was %s; stopping them\n", outcome.text().c_str());
    kill_the_rest();
  }
  return outcome.code();
}

}  // namespace farad::run
