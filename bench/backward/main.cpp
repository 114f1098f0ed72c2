// What backward passes cost, beside PyTorch's dist_autograd, in one run.

#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "backward/plot.h"
#include "backward/report.h"
#include "backward/roles.h"
#include "common/children.h"

namespace farad::bench {
namespace {

using nlohmann::json;

const std::map<std::string, void (*)(const Words&)> roles = {{"pass-client", pass_client},
                                                             {"pass-server", pass_server},
                                                             {"simulated-pass", simulated_pass},
                                                             {"walk-graph", walk_graph}};

struct Options {
  std::string json_path = "out/bench_backward.json";
  std::string python = "/usr/bin/python3";
  bool peer = true;
  bool count = false;
  bool time = true;
  bool scale = true;
  std::vector<Placement> placements = {Placement::SameCore, Placement::TwoCores, Placement::Unpinned};
};

constexpr char usage[] =
    "usage: bench_backward [--quick] [--no-peer] [--scaling] [--instructions] [--python PATH] [--json FILE]\n"
    "  --quick         same core only, and nothing simulated\n"
    "  --no-peer       without PyTorch's dist_autograd\n"
    "  --scaling       only: how passes grow with the number of workers, simulated; drawn in out/\n"
    "  --instructions  instead: how many the engine needs for a node, and libtorch's, by callgrind (a minute)\n"
    "  --python PATH   an interpreter that has torch (default /usr/bin/python3)\n"
    "  --json FILE     where the figures go (default out/bench_backward.json)\n";

std::string fresh_meeting() {
  static int meetings = 0;
  const auto path = std::filesystem::temp_directory_path() /
                    ("farad-bench-backward-" + std::to_string(::getpid()) + "-" + std::to_string(++meetings));
  return "file://" + path.string();
}

json measure_peer(const Options& options, Placement placement) {
  Children children;
  const std::string port = std::to_string(20'000 + ::getpid() % 20'000 + static_cast<int>(placement));
  for (int rank : {0, 1}) {
    children.start({options.python, FARAD_BENCH_DIR "/backward/torch_dist_autograd.py", std::to_string(rank), port},
                   core_for(placement, rank));
  }
  try {
    return json::parse(children.output(180));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "PyTorch's dist_autograd could not be measured (%s); `%s` needs torch\n", error.what(),
                 options.python.c_str());
    return json::object();
  }
}

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
    if (!options.peer) continue;
    std::fprintf(stderr, "measuring torch, %s ...\n", to_string(placement));
    here.update(measure_peer(options, placement));
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
  std::ifstream file(out);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("summary:", 0) == 0 || line.rfind("totals:", 0) == 0) {
      return std::stod(line.substr(line.find(':') + 1));
    }
  }
  throw std::runtime_error("no total in " + out);
}

/// `callgrind_annotate out/callgrind.backward.farad` says where they go.
int count_instructions() {
  constexpr int passes = 5;
  constexpr double most = 0.6;
  double per_node[2] = {}, nodes = 0;
  for (const int which : {0, 1}) {
    const char* engine = which == 0 ? "farad" : "torch";
    const double none = count_walk(engine, 0, nodes);
    per_node[which] = (count_walk(engine, passes, nodes) - none) / (passes * nodes);
    std::printf("%s: %.0f instructions a node\n", engine, per_node[which]);
  }
  const double ratio = per_node[0] / per_node[1];
  std::printf("%.2fx (at most %.1fx)  %s\n", ratio, most, ratio <= most ? "reached" : "MISSED");
  return ratio <= most ? 0 : 1;
}

Options parse(const Words& words) {
  Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    auto value = [&] {
      TORCH_CHECK(i + 1 < words.size(), "[bench] ", words[i], " needs a value\n", usage);
      return words[++i];
    };
    if (words[i] == "--quick") {
      options.placements = {Placement::SameCore};
      options.scale = false;
    } else if (words[i] == "--no-peer") {
      options.peer = false;
    } else if (words[i] == "--instructions") {
      options.count = true;
    } else if (words[i] == "--scaling") {
      options.time = false;
    } else if (words[i] == "--python") {
      options.python = value();
    } else if (words[i] == "--json") {
      options.json_path = value();
    } else {
      TORCH_CHECK(false, "[bench] unknown option ", words[i], "\n", usage);
    }
  }
  return options;
}

int run(const Words& words) {
  if (!words.empty() && words[0] == "--help") return std::fputs(usage, stdout), 0;
  const Options options = parse(words);
  if (options.count) return count_instructions();
  json results = options.time ? measure(options) : json::object();
  const bool reached = report(results);
  if (options.scale) {
    results["simulated"] = measure_scaling();
    report_scaling(results["simulated"]);
    draw(results["simulated"]);
  }
  const std::filesystem::path path(options.json_path);
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << results.dump(2) << '\n';
  std::printf("\nAll figures are in %s\n", options.json_path.c_str());
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace farad::bench

int main(int argc, char** argv) {
  using namespace farad::bench;
  Words words(argv + 1, argv + argc);
  try {
    if (const auto role = words.empty() ? roles.end() : roles.find(words[0]); role != roles.end()) {
      words.erase(words.begin());
      role->second(words);
      return 0;
    }
    return run(words);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
