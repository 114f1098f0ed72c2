#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "doctor/checks.h"

namespace farad::doctor {
namespace {

constexpr const char* section = "machine";

std::string gibibytes(uint64_t bytes) {
  const auto tenths = (bytes * 10 + (uint64_t{1} << 29)) >> 30;
  return std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10) + " GiB";
}

Finding cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int usable = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const long present = ::sysconf(_SC_NPROCESSORS_ONLN);
  auto text = std::to_string(usable);
  if (usable < present) text += " of " + std::to_string(present) + " (taskset or a container keeps us off the others)";
  return {section, "cores", text};
}

/// A line such as "MemAvailable:   123 kB", in bytes.
uint64_t memory_line(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string key, unit; file >> key;) {
    uint64_t kilobytes = 0;
    file >> kilobytes;
    std::getline(file, unit);
    if (key == name + ':') return kilobytes << 10;
  }
  return 0;
}

Finding memory() {
  const uint64_t available = memory_line("MemAvailable");
  auto text = gibibytes(available) + " available of " + gibibytes(memory_line("MemTotal"));
  uint64_t limit = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit) text += ", limit of the container " + gibibytes(limit);
  if (available < uint64_t{512} << 20) {
    return {section, "memory", text, Verdict::Warning,
            "less than 0.5 GiB is free: end other programs, or use fewer workers"};
  }
  return {section, "memory", text};
}

std::string limit_text(rlim_t limit) { return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit); }

Finding open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto text = limit_text(limit.rlim_cur) + " (at most " + limit_text(limit.rlim_max) + ')';
  if (limit.rlim_cur < 1024) {
    return {section, "open files", text, Verdict::Warning,
            "a worker needs several for each peer; raise it: ulimit -n " +
                (limit.rlim_max < 4096 ? limit_text(limit.rlim_max) : "4096")};
  }
  return {section, "open files", text};
}

Finding address_space() {
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return {section, "address space", "unlimited"};
  return {section, "address space", gibibytes(limit.rlim_cur), Verdict::Warning,
          "shared memory and libtorch map much more than they use: ulimit -v unlimited"};
}

}  // namespace

Findings check_machine() { return {cores(), memory(), open_files(), address_space()}; }

}  // namespace farad::doctor
