#include "base/thread_census.h"

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace farad::base {
namespace {

std::set<std::string> threads_of_this_process() {
  std::set<std::string> ids;
  if (DIR* tasks = ::opendir("/proc/self/task")) {
    while (const dirent* entry = ::readdir(tasks)) {
      if (entry->d_name[0] != '.') ids.insert(entry->d_name);
    }
    ::closedir(tasks);
  }
  return ids;
}

const std::set<std::string> threads_at_load = threads_of_this_process();

/// Not one that has ended meanwhile. One that was joined may still be there: then it is about to.
bool forks_badly(const std::string& id) {
  std::ifstream file("/proc/self/task/" + id + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const auto name = line.find('('), rest = line.rfind(')');  // A name may have both in it.
  if (name == std::string::npos || rest == std::string::npos) return false;
  std::istringstream fields(line.substr(rest + 1));
  std::string skipped;
  for (int i = 0; i < 6; ++i) fields >> skipped;  // What it does, who began it, its groups and terminal.
  unsigned long flags = 0;
  fields >> flags;
  constexpr unsigned long is_ending = 0x4;  // The kernel's PF_EXITING.
  return (flags & is_ending) == 0 && line.substr(name + 1, rest - name - 1) != broker_thread;
}

std::atomic<int> there_at_fork = 0;  // set by whoever forks
std::atomic<int> left_behind = 0;    // by the fork that made this process

[[maybe_unused]] const int watching =
    ::pthread_atfork([] { there_at_fork = threads_started(); }, nullptr, [] { left_behind = there_at_fork.load(); });

}  // namespace

int threads_started() {
  // Not a difference of two numbers: OpenBLAS ends its threads when we fork.
  int count = left_behind;
  const auto main_thread = std::to_string(::getpid());  // The one that has forked off this process, if one has.
  for (const auto& id : threads_of_this_process()) {
    count += id != main_thread && !threads_at_load.contains(id) && forks_badly(id);
  }
  return count;
}

}  // namespace farad::base
