#include "rpc/report.h"

#include <array>
#include <cstdio>
#include <optional>
#include <string>

#include "common/sample.h"

namespace farad::bench {
namespace {

using nlohmann::json;

/// What is compared: where PyTorch chooses, and takes shared memory; and over sockets.
using Columns = std::array<const char*, 4>;
constexpr Columns tables[] = {{"shm", "torch builtin", "torch script", "torch python"},
                              {"tcp", "torch tcp builtin", "torch tcp script", "torch tcp python"}};
/// Not growing, but for what allocators keep.
constexpr uint64_t most_growth = 4 << 20;

std::optional<double> number(const json& results, const std::string& path) {
  const json::json_pointer pointer(path);
  if (!results.contains(pointer)) return {};
  return results[pointer].get<double>();
}

void print_times(const json& results, const std::string& placement, const Columns& columns) {
  std::printf("\n%s: one call after the other, p50 / p99\n  %-18s", placement.c_str(), "");
  for (const char* column : columns) std::printf(" %19s", column);
  std::printf("\n");
  for (const char* what : {"call", "by name", "remote + to_here", "1 MiB", "16 MiB"}) {
    std::printf("  %-18s", what);
    for (const char* column : columns) {
      const json::json_pointer path("/" + placement + "/" + column + "/" + what);
      std::string text = "-";
      if (results.contains(path)) {
        const auto sample = results[path].get<Sample>();
        text = readable_time(sample.p50) + " / " + readable_time(sample.p99);
      }
      std::printf(" %19s", text.c_str());
    }
    std::printf("\n");
  }
}

void print_rates(const json& results, const std::string& placement, const Columns& columns) {
  std::printf("%s: calls a second\n", placement.c_str());
  for (const char* what : {"threads/1", "threads/4", "threads/16", "pipelined"}) {
    std::printf("  %-18s", what);
    for (const char* column : columns) {
      const auto rate = number(results, "/" + placement + "/" + column + "/" + what);
      std::printf(" %19.0f", rate.value_or(0));
    }
    std::printf("\n");
  }
}

bool print_memory(const json& results) {
  bool flat = true;
  std::printf("\nMemory grown, after warming up\n");
  for (const auto& [placement, whos] : results.items()) {
    for (const char* transport : {"shm", "tcp"}) {
      if (!whos.contains(transport)) continue;
      const auto& memory = whos[transport]["memory"];
      const auto caller = memory["caller"].get<uint64_t>(), callee = memory["callee"].get<uint64_t>();
      const bool holds = caller <= most_growth && callee <= most_growth;
      std::printf("  %-10s %-4s over %lu calls: caller +%lu KiB, callee +%lu KiB  %s\n", placement.c_str(), transport,
                  memory["calls"].get<uint64_t>(), caller >> 10, callee >> 10, holds ? "reached" : "MISSED");
      flat &= holds;
    }
  }
  return flat;
}

/// Against PyTorch's builtin functions, the fastest it has.
struct Target {
  const char* what;
  const char* path;
  const char* transport;
  double bound;  ///< 0: only told
  bool rate;     ///< ours / theirs, else theirs / ours
};

constexpr Target targets[] = {
    {"small call", "call/p50", "shm", 40, false},
    {"small call", "call/p50", "tcp", 20, false},
    {"pipelined calls", "pipelined", "shm", 20, true},
    {"pipelined calls", "pipelined", "tcp", 0, true},
    {"remote + to_here", "remote + to_here/p50", "shm", 30, false},
    {"remote + to_here", "remote + to_here/p50", "tcp", 0, false},
};

bool print_target(const json& results, const std::string& placement, const Target& target, bool binds) {
  const auto ours = number(results, "/" + placement + "/" + target.transport + "/" + target.path);
  const std::string peer = std::string(target.transport) == "tcp" ? "torch tcp builtin" : "torch builtin";
  const auto theirs = number(results, "/" + placement + "/" + peer + "/" + target.path);
  if (!ours || !theirs) {
    std::printf("  %-10s %-17s %-4s not measured\n", placement.c_str(), target.what, target.transport);
    return true;
  }
  const double ratio = target.rate ? *ours / *theirs : *theirs / *ours;
  const bool reached = ratio >= target.bound;
  if (target.bound == 0) {
    std::printf("  %-10s %-17s %-4s %6.1fx\n", placement.c_str(), target.what, target.transport, ratio);
    return true;
  }
  std::printf("  %-10s %-17s %-4s %6.1fx (at least %.0fx)%s\n", placement.c_str(), target.what, target.transport, ratio,
              target.bound,
              !binds    ? ""
              : reached ? "  reached"
                        : "  MISSED");
  return reached || !binds;
}

}  // namespace

bool report(const json& results) {
  for (const auto& [placement, whos] : results.items()) {
    for (const auto& columns : tables) {
      print_times(results, placement, columns);
      print_rates(results, placement, columns);
    }
  }
  bool reached = print_memory(results);
  std::printf("\nRatios to PyTorch's rpc with builtin functions; those of the same core bind\n");
  for (const auto& [placement, whos] : results.items()) {
    for (const auto& target : targets) reached &= print_target(results, placement, target, placement == "same core");
  }
  return reached;
}

}  // namespace farad::bench
