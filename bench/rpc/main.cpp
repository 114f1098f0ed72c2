// What calls and references cost, beside PyTorch's RPC, in one run.

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/children.h"
#include "common/program.h"
#include "rpc/report.h"
#include "rpc/roles.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr char usage[] =
    "usage: bench_rpc [--quick] [--no-peer] [--calls N] [--instructions] [--python PATH] [--json FILE]\n"
    "  --quick         same core only, and fewer calls\n"
    "  --no-peer       without PyTorch's RPC\n"
    "  --calls N       how many calls memory is watched over (default 1000000; 100000 with --quick)\n"
    "  --instructions  instead: how many the caller needs for a small call, by callgrind (minutes)\n"
    "  --python PATH   an interpreter that has torch (default /usr/bin/python3)\n"
    "  --json FILE     where the figures go (default out/bench_rpc.json)\n";

json measure(const Options& options, const std::string& calls) {
  json results;
  for (Placement placement : options.placements) {
    auto& here = results[to_string(placement)];
    for (const char* transport : {"shm", "tcp"}) {
      std::fprintf(stderr, "measuring %s, %s ...\n", transport, to_string(placement));
      const std::string meeting = fresh_meeting();
      here[transport] = json::parse(
          run_roles({{"call-client", meeting, transport, calls}, {"call-server", meeting, transport}}, placement, 600));
    }
    if (!options.peer) continue;
    std::fprintf(stderr, "measuring torch rpc, %s ...\n", to_string(placement));
    here.update(measure_torch(options, placement, "rpc/torch_rpc.py"));
    here.update(measure_torch(options, placement, "rpc/torch_rpc.py", {"tcp"}));
  }
  return results;
}

/// callgrind itself prints where they go; see docs/notes/instructions_per_call.md.
void count_instructions() {
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
  std::printf("%.0f instructions a call, at the caller; `callgrind_annotate %s` says where\n",
              instructions_in(out) / calls, out.c_str());
}

int run(const Words& words) {
  Options options{.json_path = "out/bench_rpc.json"};
  std::string calls;
  bool count = false, quick = false;
  parse(words, usage, options, [&](const std::string& option, const Value& value) {
    if (option == "--instructions") return count = true;
    if (option == "--quick") quick = true;  // What else that means is for all benchmarks the same.
    if (option != "--calls") return false;
    calls = value();
    return true;
  });
  if (count) return count_instructions(), 0;
  if (calls.empty()) calls = quick ? "100000" : "1000000";
  const json results = measure(options, calls);
  const bool reached = report(results);
  write_results(options, results);
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace farad::bench

int main(int argc, char** argv) {
  using namespace farad::bench;
  return run_program(argc, argv, usage,
                     {{"call-client", call_client}, {"count-client", count_client}, {"call-server", call_server}}, run);
}
