// What operations of a group and data parallel steps cost, beside Gloo's and a plain copy, in one run.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "collectives/link.h"
#include "collectives/report.h"
#include "collectives/roles.h"
#include "collectives/training.h"
#include "common/children.h"
#include "common/program.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr char usage[] =
    "usage: bench_collectives [--quick] [--no-peer] [--no-tcp] [--python PATH] [--json FILE]\n"
    "  --quick        on the same core only\n"
    "  --no-peer      without PyTorch's Gloo\n"
    "  --no-tcp       through shared memory only\n"
    "  --python PATH  an interpreter that has torch (default /usr/bin/python3)\n"
    "  --json FILE    where the figures go (default out/bench_collectives.json)\n";

/// What so many members measure in that role, by transport; and what PyTorch does by that script.
json measure(const Options& options, const std::string& role, const std::string& script, int members, bool tcp) {
  json placements;
  for (const Placement placement : options.placements) {
    auto& here = placements[to_string(placement)];
    std::fprintf(stderr, "measuring %d as \"%s\", %s ...\n", members, role.c_str(), to_string(placement));
    for (const char* transport : {"shm", "tcp"}) {
      if (!tcp && std::string(transport) == "tcp") continue;
      const std::string meeting = fresh_meeting();
      std::vector<Words> roles;
      for (int rank = 0; rank < members; ++rank) {
        roles.push_back({role, meeting, transport, std::to_string(members), std::to_string(rank)});
      }
      here[transport] = json::parse(run_roles(roles, placement, 300));
    }
    if (!options.peer) continue;
    auto torch = measure_torch(options, placement, script, {}, members);
    if (!torch.empty()) here["torch"] = torch;
  }
  return placements;
}

/// A step computes more than it sends, and what else the machine does in one minute and not in the next would decide.
/// So all train three times, in turn, and the best of each counts.
json measure_training(const Options& options, int members, bool tcp) {
  json best;
  for (int round = 0; round < 3; ++round) {
    const auto placements = measure(options, "train", "collectives/torch_data_parallel.py", members, tcp);
    for (const auto& [placement, whos] : placements.items()) {
      for (const auto& [who, measured] : whos.items()) {
        for (const auto& [network, result] : measured.items()) {
          auto& kept = best[placement][who][network];
          if (kept.is_null() || result["step"]["p50"] < kept["step"]["p50"]) kept = result;
        }
      }
    }
  }
  return best;
}

int run(const Words& words) {
  Options options{.json_path = "out/bench_collectives.json"};
  bool tcp = true;
  parse(words, usage, options, [&](const std::string& option, const Value&) {
    if (option != "--no-tcp") return false;
    tcp = false;
    return true;
  });
  json results;
  for (const int members : {2, 4}) {
    results["members"][std::to_string(members)] =
        measure(options, "member", "collectives/torch_collectives.py", members, tcp);
  }
  for (const int members : {2, 4})
    results["training"][std::to_string(members)] = measure_training(options, members, tcp);
  if (tcp) {
    std::fprintf(stderr, "measuring two machines ...\n");
    results["link"] = measure_link();
  }
  const bool reached = report(results, options.peer);
  write_results(options, results);
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace farad::bench

int main(int argc, char** argv) {
  using namespace farad::bench;
  return run_program(argc, argv, usage, {{"member", take_part}, {"reduce", reduce_only}, {"train", train_together}},
                     run);
}
