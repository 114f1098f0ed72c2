#include "audit/processes.h"

#include <farad/error.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/thread_census.h"

namespace farad::audit {
namespace {

constexpr size_t most_text = 16'384;  // What a process says before it ends fits into its pipe.

struct Child {
  int number = 0;
  pid_t pid = -1;
  base::Fd said;  ///< ends when the process does
};

void flush_output() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

[[noreturn]] void live(int number, const std::function<void(int)>& act, int pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = 0;
  try {
    act(number);
  } catch (const std::exception& error) {
    const auto text = std::string(error.what()).substr(0, most_text);
    (void)!::write(pipe, text.data(), text.size());
    code = 1;
  }
  flush_output();
  ::_exit(code);  // What the parent has is the parent's to end.
}

/// Those who were started and not waited for are killed.
class Family {
 public:
  ~Family() {
    for (const auto& child : children_) {
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
    }
  }

  void bear(int number, const std::function<void(int)>& act) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(std::string("[audit] pipe: ") + std::strerror(errno));
    base::Fd read(ends[0]);
    base::Fd write(ends[1]);
    const pid_t pid = ::fork();
    if (pid < 0) throw Error(std::string("[audit] fork: ") + std::strerror(errno) + " (see ulimit -u)");
    if (pid == 0) {
      read.reset();
      live(number, act, write.get());
    }
    children_.push_back({number, pid, std::move(read)});
  }

  void await(base::TimePoint deadline) {
    while (!children_.empty()) {
      std::vector<pollfd> watched;
      for (const auto& child : children_) watched.push_back({child.said.get(), POLLIN, 0});
      const auto now = base::Clock::now();
      if (now >= deadline) {
        throw Timeout("[audit] worker " + std::to_string(children_.front().number) +
                      " is not done in time; try fewer rounds or workers, or give it longer");
      }
      constexpr std::chrono::milliseconds a_while(10'000);
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(std::min<base::Clock::duration>(deadline - now, a_while));
      ::poll(watched.data(), watched.size(), static_cast<int>(left.count()));
      for (size_t i = watched.size(); i-- > 0;) {
        if (watched[i].revents != 0) bury(i);
      }
    }
  }

 private:
  void bury(size_t index) {
    const Child child = std::move(children_[index]);
    children_.erase(children_.begin() + static_cast<ptrdiff_t>(index));
    std::string text;
    char some[4096];
    for (ssize_t n; (n = ::read(child.said.get(), some, sizeof some)) > 0;) text.append(some, static_cast<size_t>(n));
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    if (status == 0) return;
    const auto name = "[audit] worker " + std::to_string(child.number);
    if (WIFSIGNALED(status)) throw Error(name + " was ended by " + ::strsignal(WTERMSIG(status)));
    throw Error(name + ": " + (text.empty() ? "ended with code " + std::to_string(WEXITSTATUS(status)) : text));
  }

  std::vector<Child> children_;
};

}  // namespace

void in_processes(int n, const std::function<void(int)>& act, std::chrono::milliseconds patience) {
  if (const int threads = base::threads_started(); threads > 0) {
    throw Error("[audit] this process has started " + std::to_string(threads) +
                (threads == 1 ? " thread" : " threads") +
                ", which a fork would leave behind in the middle of whatever they do: audit before libtorch has run in "
                "parallel, a Worker has joined or a thread was started");
  }
  flush_output();
  Family family;
  const auto deadline = base::deadline_after(base::Clock::now(), patience);
  for (int i = 0; i < n; ++i) family.bear(i, act);
  family.await(deadline);
}

}  // namespace farad::audit
