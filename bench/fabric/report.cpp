#include "fabric/report.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "common/sample.h"

namespace farad::bench {
namespace {

using nlohmann::json;

std::optional<double> p50(const json& results, const std::string& placement, const std::string& who,
                          const std::string& size) {
  const auto path = json::json_pointer("/echo/" + placement + "/" + who + "/" + size + "/p50");
  if (!results.contains(path)) return {};
  return results[path].get<double>();
}

std::string cell(const json& results, const std::string& placement, const std::string& who, const std::string& size) {
  const auto path = json::json_pointer("/echo/" + placement + "/" + who + "/" + size);
  if (!results.contains(path)) return "-";
  const auto sample = results[path].get<Sample>();
  return readable_time(sample.p50) + " / " + readable_time(sample.p99);
}

void print_echo(const json& results, const std::string& placement) {
  static const char* const columns[] = {"shm", "tcp", "futex", "unix socket", "tcp socket", "memcpy", "torch rpc"};
  std::printf("\n%s: round trip of a tensor, p50 / p99\n  %-8s", placement.c_str(), "");
  for (const char* column : columns) std::printf(" %19s", column);
  std::printf("\n");
  for (const auto& size : results["sizes"]) {
    const std::string text = size.get<std::string>();
    std::printf("  %-8s", readable_bytes(std::stoull(text)).c_str());
    for (const char* column : columns) std::printf(" %19s", cell(results, placement, column, text).c_str());
    std::printf("\n");
  }
}

/// One line of "to reach": a ratio of two medians against a bound.
struct Target {
  const char* size;
  const char* who;
  const char* against;
  double bound;
  bool at_most;  ///< who / against <= bound, else against / who >= bound
};

constexpr Target targets[] = {
    {"16", "shm", "futex", 3, true},           {"16", "shm", "torch rpc", 40, false},
    {"1048576", "shm", "torch rpc", 4, false}, {"134217728", "shm", "torch rpc", 2, false},
    {"16", "tcp", "tcp socket", 2, true},
};

/// Whether this run was to measure it: --quick leaves sizes out, --no-peer the peer.
bool was_wanted(const json& results, const Target& target) {
  const auto sizes = results["sizes"].get<std::vector<std::string>>();
  const bool size = std::find(sizes.begin(), sizes.end(), target.size) != sizes.end();
  return size && (results["peer"].get<bool>() || target.against != std::string("torch rpc"));
}

bool print_target(const json& results, const std::string& placement, const Target& target, bool binds) {
  const auto ours = p50(results, placement, target.who, target.size);
  const auto other = p50(results, placement, target.against, target.size);
  const std::string what = std::string(target.who) + " " + readable_bytes(std::stoull(target.size));
  if (!ours || !other) {
    const bool missed = binds && was_wanted(results, target);
    std::printf("  %-10s %-12s %-14s not measured%s\n", placement.c_str(), what.c_str(), target.against,
                missed ? "  MISSED" : "");
    return !missed;
  }
  const double ratio = target.at_most ? *ours / *other : *other / *ours;
  const bool reached = target.at_most ? ratio <= target.bound : ratio >= target.bound;
  std::printf("  %-10s %-12s %6.1fx %s %-12s (%s %.0fx)%s\n", placement.c_str(), what.c_str(), ratio,
              target.at_most ? "of" : "faster than", target.against, target.at_most ? "at most" : "at least",
              target.bound,
              !binds    ? ""
              : reached ? "  reached"
                        : "  MISSED");
  return reached || !binds;
}

/// Not falling, but for noise; and not growing, but for what allocators keep.
constexpr double least_of_fewer_threads = 0.8;
constexpr size_t most_growth = 4 << 20;

bool print_flood(const json& results) {
  if (!results.contains("flood")) return true;
  bool reached = true;
  std::printf(
      "\n16-byte messages a second, by sending threads (each at least %.1f times what fewer send); memory grown over "
      "100,000 more (at most %zu KiB)\n",
      least_of_fewer_threads, most_growth >> 10);
  for (const auto& [placement, transports] : results["flood"].items()) {
    const bool may_miss = placement != "same core";  // As with the ratios below.
    for (const auto& [transport, flood] : transports.items()) {
      std::printf("  %-10s %-4s", placement.c_str(), transport.c_str());
      for (const char* threads : {"1", "4", "16"}) {
        std::printf("  %s: %.2f M/s", threads, flood["per_second"][threads].get<double>() / 1e6);
      }
      const size_t sender = flood["grown_bytes"]["sender"].get<size_t>();
      const size_t receiver = flood["grown_bytes"]["receiver"].get<size_t>();
      const double one = flood["per_second"]["1"].get<double>();
      const double four = flood["per_second"]["4"].get<double>();
      const double sixteen = flood["per_second"]["16"].get<double>();
      const bool holds = four >= least_of_fewer_threads * one &&
                         sixteen >= least_of_fewer_threads * std::max(one, four) && sender <= most_growth &&
                         receiver <= most_growth;
      std::printf("  sender +%zu KiB, receiver +%zu KiB  %s\n", sender >> 10, receiver >> 10,
                  holds      ? "reached"
                  : may_miss ? ""
                             : "MISSED");
      reached &= holds || may_miss;
    }
  }
  return reached;
}

}  // namespace

bool report(const json& results) {
  for (const auto& [placement, columns] : results["echo"].items()) print_echo(results, placement);
  bool reached = print_flood(results);
  std::printf("\nRatios of medians; those of the same core bind, because there a wake-up costs alike everywhere\n");
  for (const auto& [placement, columns] : results["echo"].items()) {
    for (const auto& target : targets) reached &= print_target(results, placement, target, placement == "same core");
  }
  return reached;
}

}  // namespace farad::bench
