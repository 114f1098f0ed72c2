#pragma once

#include <chrono>
#include <functional>

namespace farad::audit {

/// Runs act(0) to act(n - 1), each in a process of its own, and returns when all are done. If one throws or is killed,
/// or they are not done in time, ends the others and throws Error or Timeout with what it said. Throws Error before
/// anything else if this process has started threads.
void in_processes(int n, const std::function<void(int)>& act, std::chrono::milliseconds patience);

}  // namespace farad::audit
