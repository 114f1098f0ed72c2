#include "shared/report.h"

#include <cstdio>
#include <string>

#include "common/sample.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr double least_small = 3, least_large_hogwild = 1, least_large_locked = 1 / 1.6, most_snapshot = 1.5;

const char* verdict(bool reached) { return reached ? "reached" : "MISSED"; }

double wanted(const std::string& size, const std::string& policy) {
  if (size == "small") return least_small;
  return policy == "Locked" ? least_large_locked : least_large_hogwild;
}

/// "0.3 %", "0"; empty where it was not measured.
std::string percent(const json& figures, const char* what) {
  if (!figures.contains("elements lost")) return "";
  const double part = figures["elements lost"][what].get<double>();
  char text[32];
  std::snprintf(text, sizeof text, part == 0 ? "0" : "%.3g %%", 100 * part);
  return text;
}

void print_policy(const std::string& number, const std::string& policy, const json& figures) {
  const auto count = [&](const char* what) { return static_cast<unsigned long long>(figures[what].get<uint64_t>()); };
  std::printf("  %-9s %-10s %9.0f %9.2f %5llu %9s %9s %7llu", number.c_str(), policy.c_str(),
              figures["steps a second"].get<double>(), figures["mean staleness"].get<double>(), count("most staleness"),
              percent(figures, "mean").c_str(), percent(figures, "worst").c_str(), count("lost"));
  const auto& losses = figures["losses"];
  losses.empty() ? std::printf(" %9s", "") : std::printf(" %9.2g", losses.back().get<double>());
}

bool print_training(const json& training) {
  bool reached = true;
  for (const auto& [size, numbers] : training.items()) {
    std::printf("\nA Linear of %s, batch 8, SGD, all processes together\n", size == "small" ? "16 KB" : "100 MB");
    std::printf("  %-9s %-10s %9s %15s %19s %7s %9s\n", "", "", "", "staleness", "elements lost", "updates", "loss in");
    std::printf("  %-9s %-10s %9s %9s %5s %9s %9s %7s %9s  %s\n", "processes", "policy", "updates/s", "mean", "most",
                "mean", "worst", "lost", "the end", "beside torch.multiprocessing");
    for (const auto& [number, policies] : numbers.items()) {
      for (const auto& [policy, here] : policies.items()) {
        if (policy == "torch" || policy == "group" || policy == "floor") continue;
        print_policy(number, policy, here);
        const double torch = policies.value("torch", json::object()).value(policy, 0.0);
        if (torch > 0) {
          const double ratio = here["steps a second"].get<double>() / torch, least = wanted(size, policy);
          std::printf("  %.1fx of %.0f (at least %.2gx)  %s", ratio, torch, least, verdict(ratio >= least));
          std::printf(", would be %.1fx with nothing shared", policies["floor"].get<double>() / torch);
          reached &= ratio >= least;
        }
        if (policy == "AllReduced") {
          const double group = policies["group"].get<double>();
          std::printf("  %.1fx of %.0f by a Group", here["steps a second"].get<double>() / group, group);
        }
        std::printf("\n");
      }
    }
  }
  return reached;
}

bool print_looks(const json& look) {
  std::printf("\nA copy of a model of 100 MB\n");
  for (const auto& [what, sample] : look.items()) {
    std::printf("  %-24s %9s\n", what.c_str(), readable_time(sample.get<Sample>().p50).c_str());
  }
  bool reached = true;
  for (const auto& [ours, floor] : {std::pair{"pull", "memcpy"}, std::pair{"snapshot", "memcpy into new memory"}}) {
    const double ratio = look[ours].get<Sample>().p50 / look[floor].get<Sample>().p50;
    std::printf("  %s / %s: %.2f (at most %.1f)  %s\n", ours, floor, ratio, most_snapshot,
                verdict(ratio <= most_snapshot));
    reached &= ratio <= most_snapshot;
  }
  return reached;
}

}  // namespace

bool report(const json& results) {
  const bool trained = print_training(results["training"]);
  const bool copied = print_looks(results["look"]);
  return trained && copied;
}

}  // namespace farad::bench
