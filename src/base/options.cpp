#include "base/options.h"

#include <array>
#include <string_view>

namespace farad {
namespace base {
namespace {

/// Rank and size always come from the same starter: one inside the other leaves variables of both.
struct Starter {
  Var rank;
  Var size;
};

// The order is from the inside out: `farad run` and torchrun are started from within mpirun or a Slurm job, mpirun from
// within a Slurm job, not the other way round.
constexpr std::array starters{
    Starter{Var::Rank, Var::WorldSize},
    Starter{Var::OmpiRank, Var::OmpiSize},
    Starter{Var::PmiRank, Var::PmiSize},
    Starter{Var::SlurmRank, Var::SlurmSize},
};

const Starter* starter_of(const Environment& environment) {
  for (const auto& starter : starters) {
    if (environment.has(starter.rank)) return &starter;
  }
  return nullptr;
}

/// Reads into an option that has its default; others are the user's and stay.
template <class T>
Status fill(const Environment& environment, Var var, T& option, const T& unset) {
  if (option != unset || !environment.has(var)) return {};
  if constexpr (std::is_same_v<T, std::string>) {
    return environment.read(var, option);
  } else {
    int64_t value = 0;
    if (auto status = environment.read(var, value); !status.ok()) return status;
    option = static_cast<T>(value);
    return {};
  }
}

std::string tcp_address(const std::string& host, int64_t port) {
  const bool bare_ipv6 = host.find(':') != host.npos && host.front() != '[';
  return "tcp://" + (bare_ipv6 ? '[' + host + ']' : host) + ':' + std::to_string(port);
}

/// The first name of a Slurm host list: "rack[1-2]node[07-12,20],login" -> "rack1node07".
std::string first_host(std::string_view list) {
  std::string host;
  while (!list.empty() && list.front() != ',') {
    const bool range = list.front() == '[';
    if (range) list.remove_prefix(1);
    host += list.substr(0, list.find_first_of(range ? "-,]" : ",["));
    const auto end = list.find_first_of(range ? "]" : ",[");
    if (end == list.npos) break;
    list.remove_prefix(range ? end + 1 : end);
  }
  return host;
}

Status slurm_address(const Environment& environment, std::string& address) {
  int64_t nodes = 0;
  int64_t job = 0;
  int64_t step = 0;
  for (const auto& [var, out] :
       {std::pair{Var::SlurmNodes, &nodes}, std::pair{Var::SlurmJob, &job}, std::pair{Var::SlurmStep, &step}}) {
    if (auto status = environment.read(var, *out); !status.ok()) return status;
  }
  auto list = environment.text(Var::SlurmStepNodeList);
  if (!list) list = environment.text(Var::SlurmJobNodeList);
  if (nodes != 1 && !list) return {};
  // Below the range from which the kernel takes ports for outgoing connections; another one for each job and step, so
  // that two jobs on one machine do not meet.
  const uint64_t mixed = static_cast<uint64_t>(job) * 37 + static_cast<uint64_t>(step);
  int64_t port = 15'000 + static_cast<int64_t>(mixed % 15'000);
  if (environment.has(Var::MasterPort)) {
    if (auto status = environment.read(Var::MasterPort, port); !status.ok()) return status;
  }
  address = tcp_address(nodes == 1 ? "127.0.0.1" : first_host(*list), port);
  return {};
}

/// mpirun names no meeting point. On one machine its own directory for the job is one: private to the user, another one
/// for each job, removed at the end.
Status ompi_address(const Environment& environment, std::string& address) {
  int64_t local_size = 0;
  int64_t size = -1;
  for (const auto& [var, out] : {std::pair{Var::OmpiLocalSize, &local_size}, std::pair{Var::OmpiSize, &size}}) {
    if (auto status = environment.read(var, *out); !status.ok()) return status;
  }
  const auto directory = environment.text(Var::PmixServerDirectory);
  const auto job = environment.text(Var::PmixNamespace);
  if (local_size != size || !directory || !job) return {};
  address = "file://" + *directory + "/farad-" + *job;
  return {};
}

Status master_address(const Environment& environment, const Starter* starter, std::string& address) {
  if (const auto host = environment.text(Var::MasterAddr)) {
    int64_t port = 0;
    if (auto status = environment.read(Var::MasterPort, port); !status.ok()) return status;
    // torchrun's own store may sit on the port that it tells; see the table.
    if (environment.text(Var::AgentStore) == "True") port = port == 65'535 ? 1024 : port + 1;
    address = tcp_address(*host, port);
    return {};
  }
  if (starter && starter->rank == Var::OmpiRank) return ompi_address(environment, address);
  // Slurm's own launcher speaks PMI, too, when it is asked to.
  const bool by_slurm = starter && (starter->rank == Var::SlurmRank || starter->rank == Var::PmiRank);
  if (by_slurm && environment.has(Var::SlurmRank)) return slurm_address(environment, address);
  return {};
}

Status complete_place(WorkerOptions& options, const Environment& environment) {
  const auto* starter = starter_of(environment);
  if (starter) {
    if (auto status = fill(environment, starter->rank, options.rank, -1); !status.ok()) return status;
    if (auto status = fill(environment, starter->size, options.size, -1); !status.ok()) return status;
  } else if (auto status = fill(environment, Var::WorldSize, options.size, -1); !status.ok()) {
    return status;  // One rank may be told to each worker by the program itself.
  }
  if (auto status = fill(environment, Var::Rendezvous, options.rendezvous, std::string()); !status.ok()) return status;
  if (!options.rendezvous.empty()) return {};
  return master_address(environment, starter, options.rendezvous);
}

Status complete_rest(WorkerOptions& options, const Environment& environment) {
  const WorkerOptions unset;
  if (auto status = fill(environment, Var::Name, options.name, unset.name); !status.ok()) return status;
  if (auto status = fill(environment, Var::Transport, options.transport, unset.transport); !status.ok()) return status;
  if (auto status = fill(environment, Var::RpcTimeout, options.rpc_timeout, unset.rpc_timeout); !status.ok()) {
    return status;
  }
  if (auto status = fill(environment, Var::JoinTimeout, options.join_timeout, unset.join_timeout); !status.ok()) {
    return status;
  }
  if (auto status = fill(environment, Var::LostAfter, options.lost_after, unset.lost_after); !status.ok()) {
    return status;
  }
  return fill(environment, Var::Threads, options.threads, unset.threads);
}

}  // namespace

Status complete(WorkerOptions& options, const Environment& environment) {
  WorkerOptions completed = options;
  if (auto status = complete_place(completed, environment); !status.ok()) return status;
  if (auto status = complete_rest(completed, environment); !status.ok()) return status;
  options = std::move(completed);
  return {};
}

Status check(const WorkerOptions& options) {
  const auto invalid = [](std::string message) { return Status(Code::Invalid, "[worker] join: " + message); };
  constexpr const char* start = "; start the program with farad run, torchrun, mpirun or srun, or set ";
  if (options.rank == -1) return invalid(std::string("no rank") + start + "WorkerOptions::rank or RANK");
  if (options.size == -1) return invalid(std::string("no group size") + start + "WorkerOptions::size or WORLD_SIZE");
  const auto most = variable(Var::WorldSize).most;
  if (options.size < 1 || options.size > most) {
    return invalid("size " + std::to_string(options.size) + ": expected 1 to " + std::to_string(most));
  }
  // One that is too large is refused where the group meets, so that the others hear of it as well.
  if (options.rank < 0) return invalid("rank " + std::to_string(options.rank) + ": expected 0 or more");
  if (options.rendezvous.empty()) {
    return invalid(
        "nobody says where the group meets; set MASTER_ADDR and MASTER_PORT to a host and a free port of rank 0 (with "
        "mpirun: -x MASTER_ADDR=host -x MASTER_PORT=port), or FARAD_RENDEZVOUS, or WorkerOptions::rendezvous");
  }
  const auto negative = [](std::chrono::milliseconds span) { return span.count() < 0; };
  if (negative(options.rpc_timeout) || negative(options.join_timeout) || negative(options.lost_after)) {
    return invalid("rpc_timeout, join_timeout and lost_after cannot be negative; 0 means no limit");
  }
  if (options.threads < 0) return invalid("threads " + std::to_string(options.threads) + ": expected 0 or more");
  return {};
}

}  // namespace base

WorkerOptions WorkerOptions::from_environment() {
  WorkerOptions options;
  base::complete(options, base::Environment::process()).raise();
  return options;
}

}  // namespace farad
