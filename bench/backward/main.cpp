// What backward passes cost, beside PyTorch's dist_autograd, in one run.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backward/plot.h"
#include "backward/report.h"
#include "backward/roles.h"
#include "common/children.h"
#include "common/program.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr char usage[] =
    "usage: bench_backward [--quick] [--no-peer] [--scaling] [--instructions] [--python PATH] [--json FILE]\n"
    "  --quick         same core only, nothing simulated, and no instructions counted\n"
    "  --no-peer       without PyTorch's dist_autograd\n"
    "  --scaling       only: how passes grow with the number of workers, simulated; drawn in out/\n"
    "  --instructions  only: how many the engine needs for a node, and libtorch's, by callgrind (a minute)\n"
    "  --python PATH   an interpreter that has torch (default /usr/bin/python3)\n"
    "  --json FILE     where the figures go (default out/bench_backward.json)\n";

json measure(const Options& options) {
  json results;
  for (Placement placement : options.placements) {
    auto& here = results[to_string(placement)];
    for (const char* transport : {"shm", "tcp"}) {
      std::fprintf(stderr, "measuring %s, %s ...\n", transport, to_string(placement));
      const std::string meeting = fresh_meeting();
      here[transport] = json::parse(
          run_roles({{"pass-client", meeting, transport}, {"pass-server", meeting, transport}}, placement, 180));
    }
    const std::string floor = fresh_meeting();
    here["floor"] = json::parse(run_roles({{"pass-floor", floor}, {"pass-floor-peer", floor}}, placement));
    if (!options.peer) continue;
    std::fprintf(stderr, "measuring torch, %s ...\n", to_string(placement));
    here.update(measure_torch(options, placement, "backward/torch_dist_autograd.py"));
    here.update(measure_torch(options, placement, "backward/torch_dist_autograd.py", {"tcp"}));
  }
  return results;
}

/// In a process each: a thousand workers are several thousand threads.
json measure_scaling() {
  json scaling;
  for (const char* shape : {"chain", "tree", "star"}) {
    for (const char* workers : {"10", "100", "1000"}) {
      std::fprintf(stderr, "simulating a %s of %s ...\n", shape, workers);
      scaling[shape][workers] = json::parse(run_roles({{"simulated-pass", shape, workers}}, Placement::Unpinned, 600));
    }
  }
  return scaling;
}

void draw(const json& scaling) {
  std::filesystem::create_directories("out");
  std::ofstream("out/backward_time.svg") << plot_scaling(scaling, "ms", "Simulated time of a pass, in ms");
  std::ofstream("out/backward_messages.svg") << plot_scaling(scaling, "messages", "Messages of a pass");
}

/// Of so many passes, with what comes before them.
double count_walk(const char* engine, int passes, double& nodes) {
  const std::string out = std::string("out/callgrind.backward.") + engine;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");  // Under valgrind that is valgrind.
  std::filesystem::create_directories("out");
  Children children;
  children.start({"valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=" + out,
                  "--toggle-collect=farad::bench::walk_passes*", self, "walk-graph", engine, std::to_string(passes)},
                 core_for(Placement::SameCore, 0));
  nodes = std::stod(children.output(600));
  return instructions_in(out);
}

/// A node, on average. `callgrind_annotate out/callgrind.backward.farad` says where they go.
json count_instructions() {
  constexpr int passes = 5;
  json per_node;
  double nodes = 0;
  for (const char* engine : {"farad", "context", "torch"}) {
    std::fprintf(stderr, "counting instructions, %s ...\n", engine);
    const double none = count_walk(engine, 0, nodes);
    per_node[engine] = (count_walk(engine, passes, nodes) - none) / (passes * nodes);
  }
  return per_node;
}

bool has_valgrind() { return std::system("valgrind --version >/dev/null 2>&1") == 0; }

int run(const Words& words) {
  Options options{.json_path = "out/bench_backward.json"};
  bool time = true, scale = true, count = true, quick = false;
  parse(words, usage, options, [&](const std::string& option, const Value&) {
    if (option == "--quick") quick = true;
    if (option == "--instructions") {
      time = scale = false;
      return count = true;
    }
    if (option != "--scaling") return false;
    time = count = false;
    return true;
  });
  if (time && quick) scale = count = false;
  json results = time ? measure(options) : json::object();
  bool reached = report(results);
  if (count && (!time || has_valgrind())) {
    results["instructions"] = count_instructions();
    reached &= report_instructions(results["instructions"]);
  } else if (count) {
    std::printf("\nInstructions: not counted, because there is no valgrind\n");
  }
  if (scale) {
    results["simulated"] = measure_scaling();
    report_scaling(results["simulated"]);
    draw(results["simulated"]);
  }
  write_results(options, results);
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace farad::bench

int main(int argc, char** argv) {
  using namespace farad::bench;
  return run_program(argc, argv, usage,
                     {{"pass-client", pass_client},
                      {"pass-floor", pass_floor},
                      {"pass-floor-peer", pass_floor_peer},
                      {"pass-server", pass_server},
                      {"simulated-pass", simulated_pass},
                      {"walk-graph", walk_graph}},
                     run);
}
