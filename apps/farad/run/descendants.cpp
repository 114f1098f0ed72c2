#include "run/descendants.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "base/fd.h"

namespace farad::run {
namespace {

std::optional<ProcessInfo> look_at(pid_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const base::Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  char text[1024];
  const auto size = ::read(file.get(), text, sizeof text - 1);
  if (size <= 0) return std::nullopt;
  text[size] = 0;
  // The program's name stands in parentheses and may hold anything, parentheses too.
  const char* rest = std::strrchr(text, ')');
  if (!rest) return std::nullopt;
  ProcessInfo info;
  info.pid = pid;
  const int fields =
      std::sscanf(rest + 1, " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                  &info.state, &info.parent, &info.group, &info.started);
  if (fields != 4) return std::nullopt;
  return info;
}

bool alive(const ProcessInfo& info) { return info.state != 'Z' && info.state != 'X'; }

std::vector<ProcessInfo> descendants() {
  std::multimap<pid_t, ProcessInfo> by_parent;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const pid_t pid = std::atoi(entry->path().filename().c_str());
    if (pid <= 0) continue;
    if (const auto info = look_at(pid)) by_parent.emplace(info->parent, *info);
  }
  std::vector<ProcessInfo> result;
  std::vector<pid_t> parents{::getpid()};
  while (!parents.empty()) {
    const auto [first, last] = by_parent.equal_range(parents.back());
    parents.pop_back();
    for (auto child = first; child != last; ++child) {
      parents.push_back(child->second.pid);
      if (alive(child->second)) result.push_back(child->second);
    }
  }
  return result;
}

/// The number may have passed to a stranger since we looked; a pidfd cannot.
void signal_exactly(const ProcessInfo& info, int signal) {
  const base::Fd process(static_cast<int>(::syscall(SYS_pidfd_open, info.pid, 0)));
  if (!process) return;
  const auto now = look_at(info.pid);
  if (now && now->started == info.started) ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
}

}  // namespace

int signal_descendants(int signal, const std::function<bool(const ProcessInfo&)>& wanted) {
  int count = 0;
  for (const auto& info : descendants()) {
    if (wanted && !wanted(info)) continue;
    signal_exactly(info, signal);
    ++count;
  }
  return count;
}

}  // namespace farad::run
