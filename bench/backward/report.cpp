#include "backward/report.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "common/sample.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr const char* columns[] = {"floor", "shm", "tcp", "torch", "torch tcp"};

std::optional<double> number(const json& results, const std::string& path) {
  const json::json_pointer pointer(path);
  if (!results.contains(pointer)) return {};
  return results[pointer].get<double>();
}

const char* verdict(bool reached, bool binds = true) { return !binds ? "" : reached ? "  reached" : "  MISSED"; }

void print_times(const json& results, const std::string& placement) {
  std::printf("\n%s: a context, its calls and a pass, p50 / p99\n  %-18s", placement.c_str(), "");
  for (const char* column : columns) std::printf(" %19s", column);
  std::printf("\n");
  for (const char* what : {"one call", "ten calls"}) {
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
  std::printf("%s: passes of one call, a second\n", placement.c_str());
  for (const char* threads : {"1", "4", "16"}) {
    std::printf("  %2s threads        ", threads);
    for (const char* column : columns) {
      const auto rate = number(results, "/" + placement + "/" + column + "/threads/" + threads);
      std::printf(" %19s", rate ? std::to_string(std::lround(*rate)).c_str() : "-");
    }
    std::printf("\n");
  }
}

/// Against PyTorch's dist_autograd.
struct Target {
  const char* what;
  const char* path;
  const char* transport;
  double bound;
  bool rate;  ///< ours / theirs, else theirs / ours
};

constexpr Target targets[] = {
    {"one call", "one call/p50", "shm", 25, false},   {"one call", "one call/p50", "tcp", 12, false},
    {"ten calls", "ten calls/p50", "shm", 30, false}, {"1 thread", "threads/1", "shm", 30, true},
    {"4 threads", "threads/4", "shm", 30, true},      {"16 threads", "threads/16", "shm", 30, true},
};

bool print_target(const json& results, const std::string& placement, const Target& target, bool binds) {
  const auto ours = number(results, "/" + placement + "/" + target.transport + "/" + target.path);
  // Over sockets where we are; otherwise it chooses, and takes shared memory.
  const std::string peer = std::string(target.transport) == "tcp" ? "torch tcp" : "torch";
  const auto theirs = number(results, "/" + placement + "/" + peer + "/" + target.path);
  if (!ours || !theirs) {
    std::printf("  %-10s %-10s %-4s not measured\n", placement.c_str(), target.what, target.transport);
    return true;
  }
  const double ratio = target.rate ? *ours / *theirs : *theirs / *ours;
  const bool reached = ratio >= target.bound;
  std::printf("  %-10s %-10s %-4s %6.1fx (at least %.0fx)%s\n", placement.c_str(), target.what, target.transport, ratio,
              target.bound, verdict(reached, binds));
  return reached || !binds;
}

/// What nobody could reach: a pass needs what the floor does, and more.
void print_floor(const json& results, const std::string& placement) {
  for (const char* what : {"one call", "ten calls"}) {
    const auto path = [&](const char* who) { return "/" + placement + "/" + who + "/" + what + "/p50"; };
    const auto floor = number(results, path("floor")), theirs = number(results, path("torch"));
    if (floor && theirs) {
      std::printf("  %-10s %-10s would be %.1fx with nothing of ours\n", placement.c_str(), what, *theirs / *floor);
    }
  }
}

/// What needs no peer. Times bind on the same core, counts everywhere.
bool print_own(const std::string& placement, const std::string& transport, const json& ours, bool binds) {
  constexpr double most_of_fast = 1.10, most_of_memcpy = 2;
  const char *where = placement.c_str(), *by = transport.c_str();
  bool all = true;
  for (const auto& [what, modes] : ours["modes"].items()) {
    const double ratio = modes["ratio"].get<double>();
    const bool reached = ratio <= most_of_fast;
    std::printf("  %-10s %-4s SMART %.2fx of FAST, %s (at most %.2fx)%s\n", where, by, ratio, what.c_str(),
                most_of_fast, verdict(reached, binds));
    all &= reached || !binds;
  }
  const double pass = ours["large"]["pass"]["p50"].get<double>();
  const double copy = ours["large"]["memcpy"]["p50"].get<double>();
  const bool quick = pass <= most_of_memcpy * copy, has_to = binds && transport == "shm";
  std::printf("  %-10s %-4s a gradient of 64 MiB: %s, %.2fx of a memcpy of it (at most %.0fx)%s\n", where, by,
              readable_time(pass).c_str(), pass / copy, most_of_memcpy, verdict(quick, has_to));
  all &= quick || !has_to;
  for (const auto& [what, messages] : ours["messages"].items()) {
    const auto sent = messages["sent"].get<uint64_t>(), bound = messages["bound"].get<uint64_t>();
    std::printf("  %-10s %-4s messages of a pass over %s: %lu (at most %lu)%s\n", where, by, what.c_str(), sent, bound,
                verdict(sent <= bound));
    all &= sent <= bound;
  }
  return all;
}

}  // namespace

bool report(const json& results) {
  if (results.empty()) return true;
  for (const auto& [placement, whos] : results.items()) print_times(results, placement);
  std::printf("\nRatios to PyTorch's dist_autograd; those of the same core bind\n");
  bool reached = true;
  for (const auto& [placement, whos] : results.items()) {
    print_floor(results, placement);
    for (const auto& target : targets) reached &= print_target(results, placement, target, placement == "same core");
  }
  std::printf("\nOf farad alone\n");
  for (const auto& [placement, whos] : results.items()) {
    for (const char* transport : {"shm", "tcp"}) {
      if (whos.contains(transport))
        reached &= print_own(placement, transport, whos[transport], placement == "same core");
    }
  }
  return reached;
}

bool report_instructions(const json& per_node) {
  constexpr double most = 0.6;
  const double torch = per_node["torch"].get<double>();
  std::printf("\nInstructions for a small node, by callgrind\n");
  for (const auto& [engine, count] : per_node.items()) {
    std::printf("  %-8s %8.0f  %.2fx\n", engine.c_str(), count.get<double>(), count.get<double>() / torch);
  }
  const double ratio = per_node["farad"].get<double>() / torch;
  std::printf("  the engine needs %.2fx of what libtorch's does (at most %.1fx)%s\n", ratio, most,
              verdict(ratio <= most));
  return ratio <= most;
}

void report_scaling(const json& scaling) {
  std::printf("\nSimulated: one pass, every message takes 50 us\n  %-8s %8s %12s %10s %12s\n", "shape", "workers",
              "time", "messages", "a worker");
  for (const auto& [shape, sizes] : scaling.items()) {
    std::map<int, json> by_size;
    for (const auto& [size, figures] : sizes.items()) by_size[std::stoi(size)] = figures;
    for (const auto& [size, figures] : by_size) {
      const auto messages = figures["messages"].get<uint64_t>();
      std::printf("  %-8s %8d %12s %10lu %12.2f\n", shape.c_str(), size,
                  readable_time(figures["ms"].get<double>() * 1000).c_str(), messages,
                  static_cast<double>(messages) / size);
    }
  }
}

}  // namespace farad::bench
