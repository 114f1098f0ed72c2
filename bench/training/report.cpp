#include "training/report.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "common/sample.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr double least_step_ratio = 20, least_server_ratio = 10;

const char* verdict(bool reached) { return reached ? "reached" : "MISSED"; }

/// Where the time of a step goes; the rest is the end of its context.
void print_parts(const json& measured) {
  if (!measured.contains("call")) return;
  std::printf("      of that");
  for (const char* part : {"call", "backward", "optimizer"}) {
    std::printf("  %s %s", part, readable_time(measured[part].get<Sample>().p50).c_str());
  }
  std::printf("\n");
}

/// Of one remote Linear(256); against PyTorch where it was measured.
bool print_steps(const json& steps) {
  bool reached = true;
  std::printf("\nA full step of a remote Linear(256), batch 32, SGD: p50 / p99\n");
  for (const auto& [placement, whos] : steps.items()) {
    std::printf("  %s\n", placement.c_str());
    for (const auto& [who, measured] : whos.items()) {
      const auto sample = measured["all"].get<Sample>();
      std::printf("    %-12s %9s / %9s", who.c_str(), readable_time(sample.p50).c_str(),
                  readable_time(sample.p99).c_str());
      if (whos.contains("torch") && (who == "shm" || who == "tcp")) {
        const double ratio = whos["torch"]["all"].get<Sample>().p50 / sample.p50;
        const bool binds = who == "shm" && placement == "same core";
        std::printf("  %5.1fx", ratio);
        if (binds) std::printf(" (at least %.0fx)  %s", least_step_ratio, verdict(ratio >= least_step_ratio));
        reached &= !binds || ratio >= least_step_ratio;
      }
      if (whos.contains("torch") && (who == "one process" || who == "floor")) {
        // Distribution cannot cost less than nothing, nor than the tensors handed over.
        std::printf("  %5.1fx would be as fast", whos["torch"]["all"].get<Sample>().p50 / sample.p50);
      }
      std::printf("\n");
      print_parts(measured);
    }
  }
  return reached;
}

bool print_servers(const json& servers) {
  bool reached = true;
  std::printf("\nA parameter server, trainers each by itself: steps a second of all of them\n");
  for (const auto& [trainers, whos] : servers.items()) {
    std::printf("  %s trainer%s", trainers.c_str(), trainers == "1" ? " " : "s");
    for (const auto& [who, rate] : whos.items()) std::printf("  %s %.0f", who.c_str(), rate.get<double>());
    if (whos.contains("torch")) {
      const double ratio = whos["shm"].get<double>() / whos["torch"].get<double>();
      std::printf("  %5.1fx (at least %.0fx)  %s", ratio, least_server_ratio, verdict(ratio >= least_server_ratio));
      reached &= ratio >= least_server_ratio;
    }
    std::printf("\n");
  }
  return reached;
}

/// Where the time of a step goes. "input": its turn has come, and the stage before is not done or the message is on its
/// way. The rest is waiting for its turn, which is for gradients that let it go on, and the optimizer.
void print_pipeline(const json& pipeline) {
  std::printf("\nA transformer trained by %zu processes as a pipeline, beside one: a step\n",
              pipeline.begin().value()["pipeline"]["workers"].size());
  for (const auto& [schedule, both] : pipeline.items()) {
    const auto &many = both["pipeline"], &one = both["one process"];
    const double wall = many["wall"].get<Sample>().p50 / 1e3, alone = one["wall"].get<Sample>().p50 / 1e3;
    const double cpu = many["cpu"].get<double>(), cpu_alone = one["cpu"].get<double>();
    std::printf("  %-12s %6.1f ms, one process %6.1f ms: %.2fx the time, %.2fx the work; optimizer %.1f ms\n",
                schedule.c_str(), wall, alone, wall / alone, cpu / cpu_alone, many["optimizer"].get<double>());
    std::printf(
        "      a worker has to wait for %.0f %% of a step by the schedule; fetching an input that is there: %s\n",
        100 * both["bubble"].get<double>(), readable_time(both["message"].get<Sample>().p50).c_str());
    for (const auto& worker : many["workers"]) {
      const double forward = worker["forward"].get<double>(), backward = worker["backward"].get<double>();
      const double input = worker["input"].get<double>(), busy = forward + backward;
      std::printf(
          "      a worker:  forward %5.1f ms  backward %5.1f ms  input %5.1f ms  turn %5.1f ms: %2.0f %% waiting, ",
          forward, backward, input, std::max(wall - busy - input, 0.0), 100 * std::max(1 - busy / wall, 0.0));
      std::printf("micro-batches kept %d\n", worker["kept"].get<int>());
    }
  }
}

void print_checkpoint(const json& checkpoint) {
  const auto bytes = checkpoint["bytes"].get<size_t>();
  std::printf("\nA checkpoint of %s that another worker holds\n", readable_bytes(bytes).c_str());
  for (const char* what : {"save", "write and fsync", "load", "read", "load, cached", "read, cached"}) {
    const auto sample = checkpoint[what].get<Sample>();
    std::printf("  %-16s %9s  %6.0f MB/s\n", what, readable_time(sample.p50).c_str(),
                static_cast<double>(bytes) / sample.p50);
  }
  const double left = checkpoint["left in the cache"].get<double>();
  if (left > 0.01) std::printf("  %.0f %% of the files stayed in the page cache, where they should not\n", 100 * left);
}

}  // namespace

bool report(const json& results) {
  bool reached = print_steps(results["step"]);
  reached &= print_servers(results["parameter server"]);
  print_pipeline(results["pipeline"]);
  print_checkpoint(results["checkpoint"]);
  return reached;
}

}  // namespace farad::bench
