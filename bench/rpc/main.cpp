// What calls and references cost, beside PyTorch's RPC, in one run.

#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/children.h"
#include "rpc/report.h"
#include "rpc/roles.h"

namespace farad::bench {
namespace {

using nlohmann::json;

const std::map<std::string, void (*)(const Words&)> roles = {
    {"call-client", call_client}, {"count-client", count_client}, {"call-server", call_server}};

struct Options {
  std::string json_path = "out/bench_rpc.json";
  std::string python = "/usr/bin/python3";
  std::string calls = "100000";
  bool peer = true;
  bool count = false;
  std::vector<Placement> placements = {Placement::SameCore, Placement::TwoCores, Placement::Unpinned};
};

constexpr char usage[] =
    "usage: bench_rpc [--quick] [--no-peer] [--calls N] [--instructions] [--python PATH] [--json FILE]\n"
    "  --quick         same core only\n"
    "  --no-peer       without PyTorch's RPC\n"
    "  --calls N       how many calls memory is watched over (default 100000)\n"
    "  --instructions  instead: how many the caller needs for a small call, by callgrind (minutes)\n"
    "  --python PATH   an interpreter that has torch (default /usr/bin/python3)\n"
    "  --json FILE     where the figures go (default out/bench_rpc.json)\n";

std::string fresh_meeting() {
  static int meetings = 0;
  const auto path = std::filesystem::temp_directory_path() /
                    ("farad-bench-rpc-" + std::to_string(::getpid()) + "-" + std::to_string(++meetings));
  return "file://" + path.string();
}

json measure_peer(const Options& options, Placement placement) {
  Children children;
  const std::string port = std::to_string(20'000 + ::getpid() % 20'000 + static_cast<int>(placement));
  for (int rank : {0, 1}) {
    children.start({options.python, FARAD_BENCH_DIR "/rpc/torch_rpc.py", std::to_string(rank), port},
                   core_for(placement, rank));
  }
  try {
    return json::parse(children.output(180));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "PyTorch's RPC could not be measured (%s); `%s` needs torch\n", error.what(),
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
      here[transport] = json::parse(run_roles(
          {{"call-client", meeting, transport, options.calls}, {"call-server", meeting, transport}}, placement, 600));
    }
    if (!options.peer) continue;
    std::fprintf(stderr, "measuring torch rpc, %s ...\n", to_string(placement));
    here.update(measure_peer(options, placement));
  }
  return results;
}

/// callgrind itself prints where they go; see docs/notes/instructions_per_call.md.
int count_instructions() {
  constexpr int calls = 2000;
  const std::string meeting = fresh_meeting(), out = "out/callgrind.rpc";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");  // Under valgrind that is valgrind.
  std::filesystem::create_directories("out");
  Children children;
  children.start(
      {"valgrind", "--tool=callgrind", "--callgrind-out-file=" + out, "--toggle-collect=farad::bench::small_calls*",
       self, "count-client", meeting, "shm", std::to_string(calls)},
      core_for(Placement::TwoCores, 0));
  children.start({self, "call-server", meeting, "shm"}, core_for(Placement::TwoCores, 1));
  children.output(600);
  std::ifstream file(out);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("summary:", 0) == 0 || line.rfind("totals:", 0) == 0) {
      std::printf("%.0f instructions a call, at the caller; `callgrind_annotate %s` says where\n",
                  std::stod(line.substr(line.find(':') + 1)) / calls, out.c_str());
      return 0;
    }
  }
  return 1;
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
    } else if (words[i] == "--no-peer") {
      options.peer = false;
    } else if (words[i] == "--instructions") {
      options.count = true;
    } else if (words[i] == "--calls") {
      options.calls = value();
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
  const json results = measure(options);
  const bool reached = report(results);
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
