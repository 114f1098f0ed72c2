#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"

namespace farad::run {

/// What every worker of one job is given beside the environment we were started with.
struct JobEnvironment {
  int workers = 0;
  int port = 0;              ///< free when we looked
  int threads = 0;           ///< OMP_NUM_THREADS; 0 = the user has set it
  std::string kernels = {};  ///< OPENBLAS_CORETYPE; empty = the user has set it, or OpenBLAS knows the processor
  std::string malloc = {};   ///< GLIBC_TUNABLES; empty = the user has set it
  std::string secret = {};   ///< empty = the user has one
};

/// Finds a free port and the right kernels, and makes a secret, unless the user has one.
base::Status make_job_environment(int workers, const base::Environment& user, JobEnvironment& job);

/// The whole environment of one worker, as "NAME=value". Goes to the worker by execve, so that the secret is never on a
/// command line.
std::vector<std::string> environment_of(int rank, const JobEnvironment& job, char** user);

}  // namespace farad::run
