// What training costs, beside PyTorch's DistributedOptimizer, in one run.

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/children.h"
#include "common/program.h"
#include "training/report.h"
#include "training/roles.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr char usage[] =
    "usage: bench_training [--quick] [--no-peer] [--mib N] [--python PATH] [--json FILE]\n"
    "  --quick        steps on the same core only\n"
    "  --no-peer      without PyTorch's DistributedOptimizer\n"
    "  --mib N        how large the checkpoint is (default 256)\n"
    "  --python PATH  an interpreter that has torch (default /usr/bin/python3)\n"
    "  --json FILE    where the figures go (default out/bench_training.json)\n";

const char* const script = "training/torch_training.py";

json measure_steps(const Options& options) {
  json steps;
  for (const Placement placement : options.placements) {
    auto& here = steps[to_string(placement)];
    std::fprintf(stderr, "measuring steps, %s ...\n", to_string(placement));
    here["one process"] = json::parse(run_roles({{"step-alone"}}, placement));
    const std::string floor = fresh_meeting();
    here["floor"] = json::parse(run_roles({{"step-floor", floor}, {"step-floor-peer", floor}}, placement));
    for (const char* transport : {"shm", "tcp"}) {
      const std::string meeting = fresh_meeting();
      here[transport] = json::parse(
          run_roles({{"step-client", meeting, transport}, {"member", meeting, transport, "2", "1"}}, placement));
    }
    if (!options.peer) continue;
    if (auto torch = measure_torch(options, placement, script, {"step"}); !torch.empty()) here["torch"] = torch;
  }
  return steps;
}

/// Where the kernel puts them: there are more of them than we have names for places.
json measure_servers(const Options& options) {
  json servers;
  for (const int trainers : {1, 2, 4}) {
    auto& here = servers[std::to_string(trainers)];
    const std::string size = std::to_string(trainers + 1);
    std::fprintf(stderr, "measuring a parameter server for %d ...\n", trainers);
    for (const char* transport : {"shm", "tcp"}) {
      const std::string meeting = fresh_meeting();
      std::vector<Words> roles{{"parameter-server", meeting, transport, size}};
      for (int rank = 1; rank <= trainers; ++rank) {
        roles.push_back({"member", meeting, transport, size, std::to_string(rank)});
      }
      here[transport] = json::parse(run_roles(roles, Placement::Unpinned));
    }
    if (!options.peer) continue;
    const auto torch = measure_torch(options, Placement::Unpinned, script, {"server"}, trainers + 1);
    if (torch.is_number()) here["torch"] = torch;
  }
  return servers;
}

json measure_pipeline() {
  std::fprintf(stderr, "measuring a pipeline ...\n");
  const std::string meeting = fresh_meeting(), size = std::to_string(pipeline_workers);
  std::vector<Words> roles{{"pipeline-client", meeting, "shm"}};
  for (int rank = 1; rank < pipeline_workers; ++rank) {
    roles.push_back({"member", meeting, "shm", size, std::to_string(rank)});
  }
  return json::parse(run_roles(roles, Placement::Unpinned));
}

/// In out/, which is on a disk where a temporary directory may be none.
json measure_checkpoint(const std::string& mib) {
  std::fprintf(stderr, "measuring a checkpoint of %s MiB ...\n", mib.c_str());
  std::filesystem::create_directories("out");
  const std::string meeting = fresh_meeting();
  return json::parse(run_roles({{"checkpoint-client", meeting, "shm", "out/bench_training.checkpoint", mib},
                                {"member", meeting, "shm", "2", "1"}},
                               Placement::Unpinned));
}

int run(const Words& words) {
  Options options{.json_path = "out/bench_training.json"};
  std::string mib = "256";
  parse(words, usage, options, [&](const std::string& option, const Value& value) {
    if (option != "--mib") return false;
    mib = value();
    return true;
  });
  json results;
  results["step"] = measure_steps(options);
  results["parameter server"] = measure_servers(options);
  results["pipeline"] = measure_pipeline();
  results["checkpoint"] = measure_checkpoint(mib);
  const bool reached = report(results);
  write_results(options, results);
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace farad::bench

int main(int argc, char** argv) {
  using namespace farad::bench;
  return run_program(argc, argv, usage,
                     {{"step-client", step_client},
                      {"step-alone", step_alone},
                      {"step-floor", step_floor},
                      {"step-floor-peer", step_floor_peer},
                      {"parameter-server", parameter_server},
                      {"checkpoint-client", checkpoint_client},
                      {"pipeline-client", pipeline_client},
                      {"member", member}},
                     run);
}
