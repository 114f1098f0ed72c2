#include "common/children.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <stdexcept>

namespace farad::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr pid_t ended = -1;  // Where a process was. To a signal it would mean everybody.

/// The first two cores that we may use; the same twice if there is only one.
std::pair<int, int> cores() {
  cpu_set_t set;
  ::sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> found;
  for (int core = 0; core < CPU_SETSIZE && found.size() < 2; ++core) {
    if (CPU_ISSET(core, &set)) found.push_back(core);
  }
  return {found.at(0), found.back()};
}

}  // namespace

const char* to_string(Placement placement) {
  switch (placement) {
    case Placement::SameCore:
      return "same core";
    case Placement::TwoCores:
      return "two cores";
    case Placement::Unpinned:
      return "unpinned";
  }
  return "";
}

int core_for(Placement placement, int process) {
  if (placement == Placement::Unpinned) return -1;
  return placement == Placement::TwoCores && process % 2 == 1 ? cores().second : cores().first;
}

Children::~Children() {
  for (pid_t pid : pids_) {
    if (pid == ended) continue;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  if (out_ >= 0) ::close(out_);
}

void Children::start(const std::vector<std::string>& command, int core) {
  int ends[2] = {-1, -1};
  if (pids_.empty() && ::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("fork");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (core >= 0) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(core, &set);
      ::sched_setaffinity(0, sizeof(set), &set);
    }
    // What the others say would stand between the lines of the table.
    ::dup2(ends[1] >= 0 ? ends[1] : ::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    std::vector<char*> arguments;
    for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  if (ends[0] >= 0) {
    out_ = ends[0];
    ::close(ends[1]);
  }
  pids_.push_back(pid);
  names_.push_back(command.size() > 1 ? command[1] : command[0]);
}

std::string Children::output(int seconds) {
  std::string text;
  const auto until = Clock::now() + std::chrono::seconds(seconds);
  auto left = [&] { return std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count(); };
  while (true) {
    pollfd wait{.fd = out_, .events = POLLIN, .revents = 0};
    if (left() <= 0 || ::poll(&wait, 1, static_cast<int>(left())) <= 0)
      throw std::runtime_error(names_[0] + ": too slow");
    char bytes[4096];
    const ssize_t n = ::read(out_, bytes, sizeof(bytes));
    if (n <= 0) break;
    text.append(bytes, static_cast<size_t>(n));
  }
  for (size_t i = 0; i < pids_.size(); ++i) {
    int status = 0;
    while (::waitpid(pids_[i], &status, WNOHANG) == 0) {
      if (left() <= 0) throw std::runtime_error(names_[i] + " did not end");
      ::poll(nullptr, 0, 1);
    }
    pids_[i] = ended;
    if (status != 0) {
      throw std::runtime_error(names_[i] + " failed: " +
                               (WIFSIGNALED(status) ? std::string(::strsignal(WTERMSIG(status)))
                                                    : "exit code " + std::to_string(WEXITSTATUS(status))));
    }
  }
  pids_.clear();
  return text;
}

std::string run_roles(const std::vector<std::vector<std::string>>& roles, Placement placement, int seconds) {
  Children children;
  for (size_t i = 0; i < roles.size(); ++i) {
    std::vector<std::string> command{"/proc/self/exe"};
    command.insert(command.end(), roles[i].begin(), roles[i].end());
    children.start(command, core_for(placement, static_cast<int>(i)));
  }
  return children.output(seconds);
}

}  // namespace farad::bench
