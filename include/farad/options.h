#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace farad {

struct WorkerInfo {
  std::string name;
  int rank;
};

struct WorkerOptions {
  std::string name = {};  ///< "worker<rank>" when empty; unique in the group
  int rank = -1;
  int size = -1;
  std::string rendezvous = {};                    ///< "tcp://host:port", "file:///path", "local://name" (one process)
  std::string transport = {};                     ///< "" picks the best one; otherwise a transport's name
  std::chrono::milliseconds rpc_timeout{60'000};  ///< 0 = none
  std::chrono::milliseconds join_timeout{120'000};
  std::chrono::milliseconds lost_after{3'000};  ///< silence after which a peer counts as lost; 0 = never (debuggers)
  int threads = 0;                              ///< for remote functions; 0 = one per core, more when all wait

  /// What FARAD_*, `farad run`, torchrun, mpirun or srun put into the environment; see docs/guide/environment.md for
  /// the variables and who goes before whom. What they do not say keeps its default. Throws Error, naming the variable,
  /// its value and what is expected, if one is malformed.
  static WorkerOptions from_environment();
};

struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  ///< unset = rpc_timeout, 0 = none
};

}  // namespace farad
