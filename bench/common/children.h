#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace farad::bench {

/// Where processes that talk to each other run.
enum class Placement { SameCore, TwoCores, Unpinned };

const char* to_string(Placement);
/// The core for the n-th of them, in turn if there are more than cores; -1 to leave it to the kernel.
int core_for(Placement, int process);

/// Processes that belong together. Whatever happens, none is left behind.
class Children {
 public:
  Children() = default;
  ~Children();
  Children(const Children&) = delete;

  /// Starts `command` on that core (-1: any); its standard output is what output() reads if it is the first,
  /// and nobody's otherwise.
  void start(const std::vector<std::string>& command, int core);
  /// What the first one wrote, once all have ended. Throws if one of them failed or took longer than `seconds`.
  std::string output(int seconds);

 private:
  std::vector<pid_t> pids_;
  std::vector<std::string> names_;
  int out_ = -1;
};

/// Runs this program again as each of the given roles, e.g. {"echo-server", "shm", ...}, and returns what the first
/// wrote.
std::string run_roles(const std::vector<std::vector<std::string>>& roles, Placement placement, int seconds = 120);

}  // namespace farad::bench
