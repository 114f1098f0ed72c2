#include <array>
#include <limits>

#include "base/environment.h"

namespace farad::base {
namespace {

constexpr int64_t any = std::numeric_limits<int64_t>::max();
constexpr int64_t most_ranks = 65'535;  // A rank has sixteen bits, and one number stays free.
constexpr int64_t most_ms = int64_t{1000} * 60 * 60 * 24 * 365;

constexpr Variable text(Var id, const char* name, const char* readers, const char* meaning, const char* fallback = "") {
  return {id, name, Kind::Text, fallback, 0, 0, "", readers, meaning};
}
constexpr Variable whole(Var id, const char* name, int64_t least, int64_t most, const char* readers,
                         const char* meaning, const char* fallback = "") {
  return {id, name, Kind::Whole, fallback, least, most, "", readers, meaning};
}
constexpr Variable amount(Var id, const char* name, Kind kind, const char* fallback, int64_t most, const char* readers,
                          const char* meaning) {
  return {id, name, kind, fallback, 0, most, "", readers, meaning};
}

constexpr std::array table{
    // Ours.
    text(Var::Name, "FARAD_NAME", "worker", "name of this worker, unique in the group; worker<rank> when unset"),
    text(Var::Rendezvous, "FARAD_RENDEZVOUS", "worker",
         "where the group meets: tcp://host:port, file:///path or local://name; before MASTER_ADDR"),
    Variable{Var::Transport, "FARAD_TRANSPORT", Kind::Choice, "", 0, 0, "shm|tcp|local", "worker",
             "use this transport for every peer instead of the best one for each"},
    text(Var::Bind, "FARAD_BIND", "tcp",
         "address to listen on and to announce when there is a secret, instead of the one toward the meeting place; "
         "without a secret it is the loopback"),
    Variable{Var::Secret, "FARAD_SECRET", Kind::Secret, "", 0, 0, "", "worker, farad run",
             "what the members of a group prove to know; farad run makes a fresh one for each job unless it is set"},
    text(Var::SecretFile, "FARAD_SECRET_FILE", "worker, farad run",
         "file that holds the secret, readable by its owner only; FARAD_SECRET goes before it"),
    amount(Var::RpcTimeout, "FARAD_RPC_TIMEOUT_MS", Kind::Milliseconds, "60000", most_ms, "worker",
           "how long a call may take; 0 = no limit"),
    amount(Var::JoinTimeout, "FARAD_JOIN_TIMEOUT_MS", Kind::Milliseconds, "120000", most_ms, "worker",
           "how long to wait for the other members; 0 = no limit"),
    amount(Var::LostAfter, "FARAD_LOST_AFTER_MS", Kind::Milliseconds, "3000", most_ms, "worker",
           "silence after which a peer counts as lost; 0 = never, for debuggers"),
    whole(Var::Threads, "FARAD_THREADS", 0, 65'536, "worker",
          "threads for remote functions; 0 = one per core, more when all wait", "0"),
    amount(
        Var::Spin, "FARAD_SPIN_US", Kind::Microseconds, "50", 1'000'000, "shm",
        "how long a waiting thread may spin before it sleeps, if the peer runs on another core; 0 = never, nor yield"),
    amount(Var::PoolBytes, "FARAD_POOL_BYTES", Kind::Bytes, "1G", any, "wire, shm",
           "most memory of idle receive buffers that is kept for the next messages; and most that tensors on loan to "
           "other "
           "processes of the machine may take, beyond which they go through rings"),
    amount(
        Var::QueueBytes, "FARAD_QUEUE_BYTES", Kind::Bytes, "64M", any, "worker",
        "how much may wait to be sent to one peer, or lie in memory that it shares and has not looked at yet, before "
        "senders wait too; a message that is more goes when nothing else waits"),
    amount(Var::LimitBody, "FARAD_LIMIT_BODY", Kind::Bytes, "256M", 0xffffffff, "wire",
           "most encoded values in one message; like the other limits, the same on every worker"),
    amount(Var::LimitPayload, "FARAD_LIMIT_PAYLOAD", Kind::Bytes, "1T", any, "wire", "most tensor data in one message"),
    whole(Var::LimitTensors, "FARAD_LIMIT_TENSORS", 0, 0xffffffff, "wire", "most tensors in one message", "65536"),
    whole(Var::LimitDims, "FARAD_LIMIT_DIMS", 0, 64, "wire", "most dimensions of a tensor", "64"),
    whole(Var::LimitDepth, "FARAD_LIMIT_DEPTH", 0, 1024, "wire", "deepest nesting of values", "64"),
    whole(Var::LimitElements, "FARAD_LIMIT_ELEMENTS", 0, 0xffffffff, "wire",
          "most elements of one container among the values", "16777216"),
    text(Var::Operators, "FARAD_OPERATORS", "worker",
         "changes which operators others may call by name, from left to right: my::op, my::*, -aten::mul, -*; unset: "
         "aten::*"),
    Variable{Var::Log, "FARAD_LOG", Kind::Choice, "warning", 0, 0, "off|error|warning|info|debug", "worker",
             "how much is written to standard error"},
    whole(Var::Stacks, "FARAD_STACKS", 0, 1, "worker",
          "1: a failure on this worker arrives at its caller with the stack of the throw", "0"),
    text(Var::Audit, "FARAD_AUDIT", "your program",
         "what an audit is asked for and where its report goes; set by farad audit, for farad::audit::requested()"),

    // Of `farad run` and torchrun.
    whole(Var::Rank, "RANK", 0, most_ranks - 1, "worker", "rank of this worker; set by farad run and torchrun"),
    whole(Var::WorldSize, "WORLD_SIZE", 1, most_ranks, "worker", "number of workers; set by farad run and torchrun"),
    whole(Var::LocalRank, "LOCAL_RANK", 0, most_ranks - 1, "your program",
          "rank among the workers of this machine; set by farad run and torchrun"),
    whole(Var::LocalWorldSize, "LOCAL_WORLD_SIZE", 1, most_ranks, "your program",
          "number of workers on this machine; set by farad run and torchrun"),
    text(Var::MasterAddr, "MASTER_ADDR", "worker", "host of rank 0; set by farad run and torchrun"),
    whole(Var::MasterPort, "MASTER_PORT", 1, 65'535, "worker",
          "port on which rank 0 awaits the others; set by farad run and torchrun", "29500"),
    text(Var::AgentStore, "TORCHELASTIC_USE_AGENT_STORE", "worker",
         "True if torchrun itself listens on MASTER_PORT; farad then takes the port after it"),
    whole(Var::OmpThreads, "OMP_NUM_THREADS", 1, 65'536, "libtorch, farad run",
          "threads for one operator; farad run shares the cores among the workers unless it is set"),
    text(Var::OpenBlasKernels, "OPENBLAS_CORETYPE", "OpenBLAS, farad run",
         "processor whose kernels OpenBLAS uses; farad run sets it where OpenBLAS is too old to know this one"),
    text(Var::GlibcTunables, "GLIBC_TUNABLES", "glibc, farad run",
         "how malloc works; farad run lets each thread keep more small blocks at hand unless it is set"),

    // Of Open MPI's mpirun, and of other starters that speak PMI.
    whole(Var::OmpiRank, "OMPI_COMM_WORLD_RANK", 0, most_ranks - 1, "worker", "rank, from mpirun (Open MPI)"),
    whole(Var::OmpiSize, "OMPI_COMM_WORLD_SIZE", 1, most_ranks, "worker", "number of workers, from mpirun (Open MPI)"),
    whole(Var::OmpiLocalRank, "OMPI_COMM_WORLD_LOCAL_RANK", 0, most_ranks - 1, "your program",
          "rank on this machine, from mpirun (Open MPI)"),
    whole(Var::OmpiLocalSize, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, most_ranks, "worker",
          "number of workers on this machine, from mpirun (Open MPI); all of them: no MASTER_ADDR is needed"),
    text(Var::PmixServerDirectory, "PMIX_SERVER_TMPDIR", "worker",
         "mpirun's directory for this job; workers on one machine meet there"),
    text(Var::PmixNamespace, "PMIX_NAMESPACE", "worker", "mpirun's name for this job"),
    whole(Var::PmiRank, "PMI_RANK", 0, most_ranks - 1, "worker", "rank, from mpiexec (MPICH and its kin)"),
    whole(Var::PmiSize, "PMI_SIZE", 1, most_ranks, "worker", "number of workers, from mpiexec (MPICH and its kin)"),

    // Of Slurm.
    whole(Var::SlurmRank, "SLURM_PROCID", 0, most_ranks - 1, "worker", "rank, from srun"),
    whole(Var::SlurmSize, "SLURM_NTASKS", 1, most_ranks, "worker", "number of workers, from srun"),
    whole(Var::SlurmLocalRank, "SLURM_LOCALID", 0, most_ranks - 1, "your program", "rank on this machine, from srun"),
    whole(Var::SlurmNodes, "SLURM_STEP_NUM_NODES", 1, most_ranks, "worker",
          "number of machines, from srun; one: the group meets on the loopback"),
    text(Var::SlurmStepNodeList, "SLURM_STEP_NODELIST", "worker",
         "machines of this step, from srun; the first one is host of rank 0 unless MASTER_ADDR is set"),
    text(Var::SlurmJobNodeList, "SLURM_JOB_NODELIST", "worker", "the same for the whole job, where srun gave no step"),
    whole(Var::SlurmJob, "SLURM_JOB_ID", 0, any, "worker",
          "the port of rank 0 follows from it unless MASTER_PORT is set"),
    whole(Var::SlurmStep, "SLURM_STEP_ID", 0, any, "worker", "likewise", "0"),

    text(Var::NoColor, "NO_COLOR", "farad run", "anything: no colours on a terminal"),
};

constexpr bool in_order() {
  for (size_t i = 0; i < table.size(); ++i) {
    if (static_cast<size_t>(table[i].id) != i) return false;
  }
  return table.size() == static_cast<size_t>(Var::NoColor) + 1;
}
static_assert(in_order(), "variable() indexes the table by Var");

}  // namespace

std::span<const Variable> variables() { return table; }

const Variable& variable(Var var) { return table[static_cast<size_t>(var)]; }

}  // namespace farad::base
