#include "acer/roles.h"

#include <farad/audit.h>
#include <sys/resource.h>
#include <torch/version.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "acer/audit.h"
#include "acer/training.h"

namespace farad::bench {

using nlohmann::json;

namespace {

/// What the processes have used that this one has started and waited for.
double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

void train(const Words& options) {
  acer::Settings settings;
  settings.evaluate_every = 0;
  for (size_t i = 0; i + 1 < options.size(); i += 2) {
    const auto &option = options[i], &value = options[i + 1];
    if (option == "--workers") settings.workers = std::stoi(value);
    if (option == "--steps") settings.steps = std::stoll(value);
    if (option == "--seed") settings.seed = std::stoull(value);
    if (option == "--evaluate-every") settings.evaluate_every = std::stoll(value);
    if (option == "--inject") settings.inject = acer::fault_named(value);
    if (option == "--out") settings.out = value;
  }
  const auto result = acer::train(settings, acer::Board::create());
  json evaluations = json::array();
  for (const auto& evaluation : result.evaluations) evaluations.push_back({evaluation.steps, evaluation.greedy.mean});
  const json told{{"torch", TORCH_VERSION},    {"steps", result.steps},        {"updates", result.updates},
                  {"seconds", result.seconds}, {"cpu seconds", cpu_seconds()}, {"evaluations", evaluations}};
  std::printf("%s\n", told.dump().c_str());
}

void audit(const Words& words) {
  audit::Options options;
  if (words.at(0) != "none") options.inject = words[0];
  const auto report = audit::run(acer::training_to_audit({}), options);
  const json told{{"verdict", audit::to_string(report.verdict)},
                  {"failed", report.failed()},
                  {"updates", report.updates},
                  {"seconds", report.seconds}};
  std::printf("%s\n", told.dump().c_str());
}

}  // namespace farad::bench
