// farad acer beside the same loop in plain PyTorch and beside PFRL's ACER: how fast they go and how soon they have
// learned; and farad acer beside itself with defects planted: what their learning curves show, and what the audit.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "acer/report.h"
#include "acer/roles.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr char usage[] =
    "usage: bench_acer [--quick] [--part NAME]... [--seeds N] [--no-peer] [--python PATH] [--pfrl PATH] [--json FILE]\n"
    "  --quick        one turn, two seeds, short trainings\n"
    "  --part NAME    only this of the three: speed, learning, faults\n"
    "  --seeds N      trainings of each kind (default 5)\n"
    "  --no-peer      only farad's\n"
    "  --python PATH  an interpreter that has torch (default /usr/bin/python3)\n"
    "  --pfrl PATH    one that has PFRL; without it PFRL is skipped\n"
    "  --json FILE    where the figures go (default out/bench_acer.json); trainings go beside it\n";

struct Plan {
  bool quick = false;
  std::string pfrl;
  Words parts;
  int seeds = 5;

  bool has(const std::string& part) const {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  }
};

/// Who trains: a command that takes the options of plain_acer.py and prints what that prints.
struct Contender {
  std::string name;
  Words command;
};

std::vector<Contender> contenders(const Options& options, const Plan& plan, json& results) {
  std::vector<Contender> all{{"farad", {"/proc/self/exe", "train"}}};
  if (!options.peer) return all;
  all.push_back({"plain", {options.python, FARAD_BENCH_DIR "/acer/plain_acer.py"}});
  if (!plan.pfrl.empty()) {
    all.push_back({"PFRL", {plan.pfrl, FARAD_BENCH_DIR "/acer/pfrl_acer.py"}});
  } else {
    results["skipped"]["PFRL"] = "no interpreter that has it; `./dev torch 2.13.0` makes the environment it goes to";
  }
  return all;
}

/// A command's last line.
json run_alone(Words command, const Words& more) {
  command.insert(command.end(), more.begin(), more.end());
  Children children;
  children.start(command, -1);
  constexpr int longest = 3600;
  auto text = children.output(longest);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return json::parse(text.substr(text.rfind('\n') + 1));
}

/// With how it went on one line. One that fails is among the failures instead.
void run(const Contender& who, const Words& options, json& done, json& results) {
  std::fprintf(stderr, "  %s, %s ... ", who.name.c_str(), ("seed " + options[3]).c_str());
  try {
    const auto one = run_alone(who.command, options);
    const auto& evaluations = one["evaluations"];
    std::fprintf(stderr, "%ld steps, %.1f s", one["steps"].get<long>(), one["seconds"].get<double>());
    if (!evaluations.empty()) std::fprintf(stderr, ", at last %.1f", evaluations.back()[1].get<double>());
    std::fprintf(stderr, "\n");
    done.push_back(one);
    done.back()["seed"] = std::stoi(options[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    results["failed"].push_back({{"who", who.name}, {"seed", std::stoi(options[3])}, {"why", error.what()}});
  }
}

/// In turns, so that whatever else the machine does meets all of them.
void measure_speed(const std::vector<Contender>& all, const Plan& plan, const std::string& out, json& results) {
  // So many that the quickest is at it for half a second: starting processes is not what is measured.
  const char* steps = plan.quick ? "5000" : "20000";
  for (int turn = 1; turn <= (plan.quick ? 1 : 3); ++turn) {
    std::fprintf(stderr, "turn %d, %s steps each\n", turn, steps);
    for (const auto& who : all) {
      Words options{"--workers", "2", "--seed", std::to_string(turn), "--steps", steps};
      if (who.name == "farad") options.insert(options.end(), {"--out", out + "/speed"});
      run(who, options, results["speed"][who.name], results);
    }
  }
}

Words long_training(const Plan& plan, int seed) {
  return {"--workers",        "2",
          "--seed",           std::to_string(seed),
          "--steps",          plan.quick ? "15000" : "60000",
          "--evaluate-every", "2500",
          "--until",          "475"};
}

/// farad's go on after they have reached what they should: their whole curves are wanted for the picture.
void train_farad(const Contender& farad, const std::string& fault, const Plan& plan, const std::string& out, json& done,
                 json& results) {
  for (int seed = 1; seed <= plan.seeds; ++seed) {
    auto options = long_training(plan, seed);
    options.insert(options.end(), {"--inject", fault, "--out", out + "/" + fault + "-" + std::to_string(seed)});
    run(farad, options, done, results);
  }
}

void measure_learning(const std::vector<Contender>& all, const Plan& plan, const std::string& out, json& results) {
  for (const auto& who : all) {
    auto& done = results["learning"][who.name];
    std::fprintf(stderr, "%s until 475\n", who.name.c_str());
    if (who.name == "farad") {
      train_farad(who, "none", plan, out, done, results);
    } else {
      for (int seed = 1; seed <= plan.seeds; ++seed) run(who, long_training(plan, seed), done, results);
    }
  }
}

void measure_faults(const Contender& farad, const Plan& plan, const std::string& out, json& results) {
  for (const char* fault : {"none", "accumulate", "stale-average", "freeze-first"}) {
    auto& here = results["faults"][fault];
    std::fprintf(stderr, "with the fault %s\n", fault);
    if (std::string(fault) == "none" && plan.has("learning")) {
      here["runs"] = results["learning"]["farad"];  // The same trainings.
    } else {
      train_farad(farad, fault, plan, out, here["runs"], results);
    }
    try {
      here["audit"] = run_alone({"/proc/self/exe", "audit"}, {fault});
    } catch (const std::exception& error) {
      results["failed"].push_back(
          {{"who", "farad"}, {"what", std::string("the audit, ") + fault}, {"why", error.what()}});
    }
  }
}

int run(const Words& words) {
  Options options{.json_path = "out/bench_acer.json"};
  Plan plan;
  bool seeds_given = false;
  parse(words, usage, options, [&](const std::string& option, const Value& value) {
    if (option == "--quick") {
      plan.quick = true;
    } else if (option == "--part") {
      plan.parts.push_back(value());
    } else if (option == "--seeds") {
      plan.seeds = std::stoi(value());
      seeds_given = true;
    } else if (option == "--pfrl") {
      plan.pfrl = value();
    } else {
      return false;
    }
    return true;
  });
  if (plan.quick && !seeds_given) plan.seeds = 2;
  const auto out = std::filesystem::path(options.json_path).replace_extension("").string();
  json results;
  const auto all = contenders(options, plan, results);
  if (plan.has("speed")) measure_speed(all, plan, out, results);
  if (plan.has("learning")) measure_learning(all, plan, out, results);
  if (plan.has("faults")) measure_faults(all.front(), plan, out, results);
  bool reached = false;
  try {
    reached = report(results, out, plan.seeds);  // Adds what it computes.
  } catch (...) {
    write_results(options, results);  // What hours of training came to must not be lost with it.
    throw;
  }
  write_results(options, results);
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace farad::bench

int main(int argc, char** argv) {
  using namespace farad::bench;
  return run_program(argc, argv, usage, {{"train", train}, {"audit", audit}}, run);
}
