// What the fabric costs, beside what the machine itself needs and beside PyTorch's RPC, in one run.

#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "common/children.h"
#include "fabric/report.h"
#include "fabric/roles.h"

namespace farad::bench {
namespace {

using nlohmann::json;

const std::map<std::string, void (*)(const Words&)> roles = {
    {"futex-ping", futex_ping},         {"socket-ping", socket_ping}, {"memcpy", memcpy_warm},
    {"echo-client", echo_client},       {"echo-server", echo_server}, {"flood-sender", flood_sender},
    {"flood-receiver", flood_receiver},
};

struct Options {
  std::string json_path = "out/bench_fabric.json";
  std::string python = "/usr/bin/python3";
  bool peer = true;
  Words sizes = {"16", "65536", "1048576", "16777216", "134217728"};
  std::vector<Placement> placements = {Placement::SameCore, Placement::TwoCores, Placement::Unpinned};
};

constexpr char usage[] =
    "usage: bench_fabric [--quick] [--no-peer] [--python PATH] [--json FILE]\n"
    "  --quick        same core only, no sizes above 1 MiB\n"
    "  --no-peer      without PyTorch's RPC\n"
    "  --python PATH  an interpreter that has torch (default /usr/bin/python3)\n"
    "  --json FILE    where the figures go (default out/bench_fabric.json)\n";

Words with_sizes(Words words, const Options& options) {
  words.insert(words.end(), options.sizes.begin(), options.sizes.end());
  return words;
}

class Run {
 public:
  explicit Run(const Options& options) : options_(options) {}

  json all() {
    results_["sizes"] = options_.sizes;
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
    echo(placement, "memcpy", {with_sizes({"memcpy"}, options_)});
    echo(placement, "unix socket", {with_sizes({"socket-ping", "unix", one, two}, options_)});
    echo(placement, "tcp socket", {with_sizes({"socket-ping", "tcp", one, two}, options_)});
  }

  void ours(Placement placement, const std::string& transport) {
    std::string meeting = fresh_meeting();
    echo(placement, transport,
         {with_sizes({"echo-client", meeting, transport}, options_), {"echo-server", meeting, transport}});
    meeting = fresh_meeting();
    progress(placement, transport + " flood");
    results_["flood"][to_string(placement)][transport] = json::parse(
        run_roles({{"flood-sender", meeting, transport}, {"flood-receiver", meeting, transport}}, placement));
  }

  void peer(Placement placement) {
    progress(placement, "torch rpc");
    Children children;
    const std::string port = std::to_string(20'000 + ::getpid() % 20'000 + ++meetings_);
    for (int rank : {0, 1}) {
      children.start(
          with_sizes({options_.python, FARAD_BENCH_DIR "/fabric/torch_rpc.py", std::to_string(rank), port}, options_),
          core_for(placement, rank));
    }
    try {
      results_["echo"][to_string(placement)]["torch rpc"] = json::parse(children.output(180));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "PyTorch's RPC could not be measured (%s); `%s` needs torch\n", error.what(),
                   options_.python.c_str());
    }
  }

  void echo(Placement placement, const std::string& who, const std::vector<Words>& processes) {
    progress(placement, who);
    results_["echo"][to_string(placement)][who] = json::parse(run_roles(processes, placement));
  }

  void progress(Placement placement, const std::string& what) {
    std::fprintf(stderr, "measuring %s, %s ...\n", what.c_str(), to_string(placement));
  }

  std::string fresh_meeting() {
    const auto path = std::filesystem::temp_directory_path() /
                      ("farad-bench-" + std::to_string(::getpid()) + "-" + std::to_string(++meetings_));
    return "file://" + path.string();
  }

  const Options options_;
  json results_;
  int meetings_ = 0;
};

Options parse(const Words& words) {
  Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    auto value = [&] {
      TORCH_CHECK(i + 1 < words.size(), "[bench] ", words[i], " needs a value\n", usage);
      return words[++i];
    };
    if (words[i] == "--quick") {
      options.sizes.resize(3);
      options.placements = {Placement::SameCore};
    } else if (words[i] == "--no-peer") {
      options.peer = false;
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
  const json results = Run(options).all();
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
  return 2;
}
