// What the fabric costs, beside what the machine itself needs and beside PyTorch's RPC, in one run.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/children.h"
#include "common/program.h"
#include "fabric/report.h"
#include "fabric/roles.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr char usage[] =
    "usage: bench_fabric [--quick] [--no-peer] [--python PATH] [--json FILE]\n"
    "  --quick        same core only, no sizes above 1 MiB\n"
    "  --no-peer      without PyTorch's RPC\n"
    "  --python PATH  an interpreter that has torch (default /usr/bin/python3)\n"
    "  --json FILE    where the figures go (default out/bench_fabric.json)\n";

class Run {
 public:
  Run(const Options& options, const Words& sizes) : options_(options), sizes_(sizes) {}

  json all() {
    results_["sizes"] = sizes_;
    results_["peer"] = options_.peer;
    for (Placement placement : options_.placements) {
      floors(placement);
      for (const char* transport : {"shm", "tcp"}) ours(placement, transport);
      if (options_.peer) peer(placement);
    }
    return results_;
  }

 private:
  void floors(Placement placement) {
    const std::string one = std::to_string(core_for(placement, 0)), two = std::to_string(core_for(placement, 1));
    echo(placement, "futex", {{"futex-ping", one, two}});
    echo(placement, "memcpy", {with_sizes({"memcpy"})});
    echo(placement, "unix socket", {with_sizes({"socket-ping", "unix", one, two})});
    echo(placement, "tcp socket", {with_sizes({"socket-ping", "tcp", one, two})});
  }

  void ours(Placement placement, const std::string& transport) {
    std::string meeting = fresh_meeting();
    echo(placement, transport, {with_sizes({"echo-client", meeting, transport}), {"echo-server", meeting, transport}});
    meeting = fresh_meeting();
    progress(placement, transport + " flood");
    results_["flood"][to_string(placement)][transport] = json::parse(
        run_roles({{"flood-sender", meeting, transport}, {"flood-receiver", meeting, transport}}, placement));
  }

  void peer(Placement placement) {
    progress(placement, "torch rpc");
    const json measured = measure_torch(options_, placement, "fabric/torch_rpc.py", sizes_);
    if (!measured.empty()) results_["echo"][to_string(placement)]["torch rpc"] = measured;
  }

  void echo(Placement placement, const std::string& who, const std::vector<Words>& processes) {
    progress(placement, who);
    results_["echo"][to_string(placement)][who] = json::parse(run_roles(processes, placement));
  }

  void progress(Placement placement, const std::string& what) {
    std::fprintf(stderr, "measuring %s, %s ...\n", what.c_str(), to_string(placement));
  }

  Words with_sizes(Words words) const {
    words.insert(words.end(), sizes_.begin(), sizes_.end());
    return words;
  }

  const Options options_;
  const Words sizes_;
  json results_;
};

int run(const Words& words) {
  Options options{.json_path = "out/bench_fabric.json"};
  Words sizes = {"16", "65536", "1048576", "16777216", "134217728"};
  parse(words, usage, options, [&](const std::string& option, const Value&) {
    if (option == "--quick") sizes.resize(3);
    return false;
  });
  const json results = Run(options, sizes).all();
  const bool reached = report(results);
  write_results(options, results);
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace farad::bench

int main(int argc, char** argv) {
  using namespace farad::bench;
  return run_program(argc, argv, usage,
                     {{"futex-ping", futex_ping},
                      {"socket-ping", socket_ping},
                      {"memcpy", memcpy_warm},
                      {"echo-client", echo_client},
                      {"echo-server", echo_server},
                      {"flood-sender", flood_sender},
                      {"flood-receiver", flood_receiver}},
                     run);
}
