#pragma once

#include <sys/types.h>

#include <functional>

namespace farad::run {

/// What /proc tells of a process.
struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  char state = 0;
  unsigned long long started = 0;
};

/// Sends `signal` to every living process below this one that `wanted` (if given) agrees to, children of children
/// included. Returns how many there were. We are their subreaper, so that none leaves the tree when its parent ends.
int signal_descendants(int signal, const std::function<bool(const ProcessInfo&)>& wanted = {});

}  // namespace farad::run
