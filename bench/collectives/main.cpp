// What operations of a group cost, beside Gloo and a plain copy, in one run.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "collectives/link.h"
#include "collectives/report.h"
#include "collectives/roles.h"
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

json measure_members(const Options& options, int members, bool tcp) {
  json placements;
  for (const Placement placement : options.placements) {
    auto& here = placements[to_string(placement)];
    std::fprintf(stderr, "measuring %d members, %s ...\n", members, to_string(placement));
    for (const char* transport : {"shm", "tcp"}) {
      if (!tcp && std::string(transport) == "tcp") continue;
      const std::string meeting = fresh_meeting();
      std::vector<Words> roles;
      for (int rank = 0; rank < members; ++rank) {
        roles.push_back({"member", meeting, transport, std::to_string(members), std::to_string(rank)});
      }
      here[transport] = json::parse(run_roles(roles, placement, 300));
    }
    if (!options.peer) continue;
    auto torch = measure_torch(options, placement, "collectives/torch_collectives.py", {}, members);
    if (!torch.empty()) here["torch"] = torch;
  }
  return placements;
}

int run(const Words& words) {
  Options options;
  options.json_path = "out/bench_collectives.json";
  bool tcp = true;
  parse(words, usage, options, [&](const std::string& option, const Value&) {
    if (option != "--no-tcp") return false;
    tcp = false;
    return true;
  });
  json results;
  for (const int members : {2, 4}) {
    results["members"][std::to_string(members)] = measure_members(options, members, tcp);
  }
  std::fprintf(stderr, "measuring two machines ...\n");
  results["link"] = tcp ? measure_link() : json{{"skipped", "--no-tcp"}};
  const bool reached = report(results);
  write_results(options, results);
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace farad::bench

int main(int argc, char** argv) {
  using namespace farad::bench;
  return run_program(argc, argv, {{"member", take_part}, {"reduce", reduce_only}}, run);
}
