#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace farad::run {

/// A started worker and our ends of its output. Reading them never blocks.
struct WorkerProcess {
  pid_t pid = -1;
  base::Fd out;
  base::Fd err;
};

struct StartOptions {
  std::vector<std::string> program;
  std::vector<std::string> environment;
  bool keeps_stdin = false;  ///< else it reads /dev/null
  sigset_t signal_mask{};    ///< what we were started with
};

/// Starts a program that is killed when this process dies. On failure `exit_code` is what a shell would return: 127 if
/// there is no such program, 126 if it cannot be run.
base::Status start(const StartOptions& options, WorkerProcess& worker, int& exit_code);

}  // namespace farad::run
