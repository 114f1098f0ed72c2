#include "base/thread_census.h"

#include <dirent.h>

#include <fstream>
#include <set>
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

/// Not one that has ended meanwhile.
bool forks_badly(const std::string& id) {
  std::ifstream file("/proc/self/task/" + id + "/comm");
  std::string name;
  return std::getline(file, name) && name != broker_thread;
}

}  // namespace

int threads_started() {
  // Not a difference of two numbers: OpenBLAS ends its threads when we fork.
  int count = 0;
  for (const auto& id : threads_of_this_process()) count += !threads_at_load.contains(id) && forks_badly(id);
  return count;
}

}  // namespace farad::base
