// Training by several processes on one model in shared memory, beside torch.multiprocessing, in one run.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/children.h"
#include "common/program.h"
#include "shared/convergence.h"
#include "shared/report.h"
#include "shared/roles.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr char usage[] =
    "usage: bench_shared [--quick] [--no-peer] [--python PATH] [--json FILE]\n"
    "  --quick        two processes and a fifth of the time\n"
    "  --no-peer      without torch.multiprocessing\n"
    "  --python PATH  an interpreter that has torch (default /usr/bin/python3)\n"
    "  --json FILE    where the figures go (default out/bench_shared.json); a drawing of the losses goes beside it\n";

json measure_losses(const char* policy, int trainers, const char* size) {
  const std::string name = fresh_meeting().substr(7), number = std::to_string(trainers);
  std::vector<Words> roles{{"tally", name, policy, number, size}};
  for (int i = 0; i < trainers; ++i) roles.push_back({"increase", name, number, size});
  return json::parse(run_roles(roles, Placement::Unpinned));
}

json measure_group(const char* size, int members, int milliseconds) {
  const std::string meeting = fresh_meeting(), number = std::to_string(members), span = std::to_string(milliseconds);
  std::vector<Words> roles;
  for (int i = 0; i < members; ++i) roles.push_back({"reduce", meeting, "", number, std::to_string(i), size, span});
  return json::parse(run_roles(roles, Placement::Unpinned));
}

/// As many processes, of which none has to do with another.
double measure_floor(const char* size, int trainers, int milliseconds) {
  const std::vector<Words> roles(static_cast<size_t>(trainers), {"train-alone", size, std::to_string(milliseconds)});
  return trainers * json::parse(run_roles(roles, Placement::Unpinned)).get<double>();
}

json measure_training(const Options& options, const std::vector<int>& numbers, int milliseconds) {
  json training;
  for (const char* size : {"small", "large"}) {
    for (const int trainers : numbers) {
      auto& here = training[size][std::to_string(trainers)];
      for (const char* policy : {"Locked", "Hogwild", "AllReduced", "Managed", "Averaged"}) {
        std::fprintf(stderr, "measuring %d on a %s model, %s ...\n", trainers, size, policy);
        const std::string name = fresh_meeting().substr(7);
        std::vector<Words> roles{{"offer", name, policy, size, std::to_string(trainers), std::to_string(milliseconds)}};
        for (int i = 0; i < trainers; ++i) roles.push_back({"train", name, size});
        here[policy] = json::parse(run_roles(roles, Placement::Unpinned));
        here[policy]["elements lost"] = measure_losses(policy, trainers, size);
      }
      here["group"] = measure_group(size, trainers, milliseconds);
      here["floor"] = measure_floor(size, trainers, milliseconds);
      if (!options.peer) continue;
      for (const char* policy : {"Locked", "Hogwild"}) {
        const auto torch = measure_torch(options, Placement::Unpinned, "shared/torch_shared.py",
                                         {policy, size, std::to_string(trainers), std::to_string(milliseconds)}, 1);
        if (torch.is_number()) here["torch"][policy] = torch;
      }
    }
  }
  return training;
}

int run(const Words& words) {
  Options options{.json_path = "out/bench_shared.json"};
  bool quick = false;
  parse(words, usage, options, [&](const std::string& option, const Value&) {
    quick = quick || option == "--quick";
    return option == "--quick";
  });
  json results;
  const int milliseconds = quick ? 400 : 2'000;
  results["training"] = measure_training(options, quick ? std::vector{2} : std::vector{1, 2, 4}, milliseconds);
  std::fprintf(stderr, "measuring a snapshot ...\n");
  results["look"] = json::parse(run_roles({{"look"}}, Placement::Unpinned));
  const bool reached = report(results);
  write_results(options, results);
  const std::string drawing = std::filesystem::path(options.json_path).replace_filename("shared_convergence.svg");
  std::ofstream(drawing) << draw_convergence(results["training"]["small"]["2"], milliseconds);
  std::printf("The loss over time under each policy, two processes: %s\n", drawing.c_str());
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace farad::bench

int main(int argc, char** argv) {
  using namespace farad::bench;
  const Roles roles{{"offer", offer},   {"train", train}, {"train-alone", train_alone},
                    {"reduce", reduce}, {"tally", tally}, {"increase", increase},
                    {"look", look}};
  return run_program(argc, argv, usage, roles, run);
}
