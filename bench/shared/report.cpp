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

bool print_training(const json& training) {
  bool reached = true;
  for (const auto& [size, numbers] : training.items()) {
    std::printf("\nA Linear of %s, batch 8, SGD, all processes together\n", size == "small" ? "16 KB" : "100 MB");
    std::printf("  %-12s %-10s %12s %10s %6s %10s  %s\n", "processes", "policy", "updates/s", "staleness", "lost",
                "last loss", "beside torch.multiprocessing");
    for (const auto& [number, policies] : numbers.items()) {
      for (const auto& [policy, here] : policies.items()) {
        if (policy == "torch") continue;
        const double rate = here["steps a second"].get<double>();
        std::printf("  %-12s %-10s %12.0f %10.2f %6llu", number.c_str(), policy.c_str(), rate,
                    here["mean staleness"].get<double>(),
                    static_cast<unsigned long long>(here["lost"].get<uint64_t>()));
        here["losses"].empty() ? std::printf(" %10s", "") : std::printf(" %10.5f", here["losses"].back().get<double>());
        // Too short a run may have no step at all.
        const double torch = policies.value("torch", json::object()).value(policy, 0.0);
        if (torch > 0) {
          const double ratio = rate / torch, least = wanted(size, policy);
          std::printf("  %.1fx of %.0f (at least %.2gx)  %s", ratio, torch, least, verdict(ratio >= least));
          reached &= ratio >= least;
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
