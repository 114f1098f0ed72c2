#include "run/job_environment.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>

#include "arithmetic/arithmetic.h"
#include "base/fd.h"
#include "memory/small_blocks.h"

namespace farad::run {
namespace {

using base::Var;

base::Status failed(const std::string& what) {
  return {base::Code::Invalid, "[run] " + what + ": " + std::strerror(errno)};
}

base::Status find_free_port(int& port) {
  const base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), generic, size) != 0 || ::getsockname(socket.get(), generic, &size) != 0) {
    return failed("no free port on 127.0.0.1");
  }
  port = ntohs(address.sin_port);
  return {};
}

base::Status make_secret(std::string& secret) {
  std::array<unsigned char, 32> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return failed("no random bytes for the job's secret");
  }
  constexpr const char* digits = "0123456789abcdef";
  for (const auto byte : bytes) {
    secret += digits[byte >> 4];
    secret += digits[byte & 15];
  }
  return {};
}

/// Those we may run on, which in a container or under taskset are fewer than the machine has.
int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

base::Status make_job_environment(int workers, const base::Environment& user, JobEnvironment& job) {
  job.workers = workers;
  if (!user.has(Var::OmpThreads)) job.threads = std::max(1, usable_cores() / workers);
  if (!user.has(Var::OpenBlasKernels)) job.kernels = arithmetic::better_kernels();
  if (!user.has(Var::GlibcTunables)) job.malloc = memory::many_small_blocks;
  if (!user.has(Var::Secret) && !user.has(Var::SecretFile)) {
    if (auto status = make_secret(job.secret); !status.ok()) return status;
  }
  return find_free_port(job.port);
}

std::vector<std::string> environment_of(int rank, const JobEnvironment& job, char** user) {
  std::map<std::string_view, std::string> ours;
  const auto set = [&ours](Var var, const std::string& value) { ours[base::variable(var).name] = value; };
  set(Var::Rank, std::to_string(rank));
  set(Var::LocalRank, std::to_string(rank));
  set(Var::WorldSize, std::to_string(job.workers));
  set(Var::LocalWorldSize, std::to_string(job.workers));
  set(Var::MasterAddr, "127.0.0.1");
  set(Var::MasterPort, std::to_string(job.port));
  if (job.threads > 0) set(Var::OmpThreads, std::to_string(job.threads));
  if (!job.kernels.empty()) set(Var::OpenBlasKernels, job.kernels);
  if (!job.malloc.empty()) set(Var::GlibcTunables, job.malloc);
  if (!job.secret.empty()) set(Var::Secret, job.secret);
  // A name belongs to one worker; and whatever store torchrun had, it is not on our port.
  set(Var::Name, "");
  set(Var::AgentStore, "");

  std::vector<std::string> result;
  for (char** entry = user; *entry; ++entry) {
    const std::string_view text(*entry);
    if (!ours.contains(text.substr(0, text.find('=')))) result.emplace_back(text);
  }
  for (const auto& [name, value] : ours) {
    if (!value.empty()) result.push_back(std::string(name) + '=' + value);
  }
  return result;
}

}  // namespace farad::run
