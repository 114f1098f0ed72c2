#include "collectives/report.h"

#include <cmath>
#include <cstdio>
#include <string>

#include "collectives/roles.h"
#include "collectives/training.h"
#include "common/sample.h"

namespace farad::bench {
namespace {

using nlohmann::json;

/// How much faster than Gloo each case has to be through shared memory, in the order of `cases`.
constexpr double least_ratios[] = {10, 5, 3, 5};
constexpr double most_of_copies = 2.5;
constexpr double least_share_of_link = 0.8;
constexpr double most_difference_of_losses = 1e-3;  // of their size: they add in different order

const char* verdict(bool reached) { return reached ? "reached" : "MISSED"; }

/// Where the kernel moves processes about, it is shown and binds nobody.
bool binds(const std::string& placement) { return placement != "unpinned"; }

/// A bound that nothing could be held against has not been reached.
bool print_peer(const json& whos, bool with_peer, bool binding) {
  if (!with_peer || whos.contains("torch")) return true;
  std::printf("      torch  not measured%s\n", binding ? "  MISSED" : "");
  return !binding;
}

/// Of the tensor: what each of so many members has to move at least, all that it gives away and all that it gets.
double least_copies(int members) { return 2.0 * (members - 1) / members; }

bool print_case(const json& whos, size_t which, int members, bool binding, bool with_peer) {
  bool reached = true;
  const Case& what = cases[which];
  std::printf("    %s: p50 / p99\n", what.name);
  for (const auto& [who, measured] : whos.items()) {
    const auto sample = measured[what.name].get<Sample>();
    std::printf("      %-6s %9s / %9s", who.c_str(), readable_time(sample.p50).c_str(),
                readable_time(sample.p99).c_str());
    if (who != "torch" && whos.contains("torch")) {
      const double ratio = whos["torch"][what.name].get<Sample>().p50 / sample.p50;
      std::printf("  %5.1fx", ratio);
      if (who == "shm" && binding) {
        std::printf(" (at least %.0fx)  %s", least_ratios[which], verdict(ratio >= least_ratios[which]));
        reached &= ratio >= least_ratios[which];
      }
    }
    if (who == "shm" && what.bytes == largest_bytes) {
      const double copies = sample.p50 / measured["copy"].get<Sample>().p50;
      const double ratio = copies / least_copies(members);
      std::printf("  %.2fx of the %.1f copies it takes", ratio, least_copies(members));
      if (binding) std::printf(" (at most %.1fx)  %s", most_of_copies, verdict(ratio <= most_of_copies));
      reached &= !binding || ratio <= most_of_copies;
    }
    std::printf("\n");
  }
  return print_peer(whos, with_peer, binding) && reached;
}

bool print_ranks(const std::string& ranks, const json& placements, bool with_peer) {
  bool reached = true;
  for (const auto& [placement, whos] : placements.items()) {
    std::printf("\n  %s members, %s; all of them copy 128 MiB once in %s\n", ranks.c_str(), placement.c_str(),
                readable_time(whos["shm"]["copy"].get<Sample>().p50).c_str());
    for (size_t which = 0; which < std::size(cases); ++which) {
      reached &= print_case(whos, which, std::stoi(ranks), binds(placement), with_peer);
    }
  }
  return reached;
}

bool print_network(const json& whos, const Network& network, bool binding, bool with_peer) {
  bool reached = true;
  std::printf("    %s, a step: p50 / p99, and the loss after %d\n", network.name, network.steps);
  for (const auto& [who, measured] : whos.items()) {
    const auto step = measured[network.name]["step"].get<Sample>();
    const auto loss = measured[network.name]["loss"].get<double>();
    std::printf("      %-6s %9s / %9s  %.6f", who.c_str(), readable_time(step.p50).c_str(),
                readable_time(step.p99).c_str(), loss);
    if (who != "torch" && whos.contains("torch")) {
      const auto& torch = whos["torch"][network.name];
      const double ratio = torch["step"].get<Sample>().p50 / step.p50;
      std::printf("  %5.2fx", ratio);
      if (who == "shm" && binding) {
        std::printf(" (at least %.1fx)  %s", network.least_ratio, verdict(ratio >= network.least_ratio));
        reached &= ratio >= network.least_ratio;
      }
      const auto expected = torch["loss"].get<double>();
      const bool same = std::abs(loss - expected) <= most_difference_of_losses * std::abs(expected);
      if (!same) std::printf("  ANOTHER LOSS");
      reached &= same;
    }
    std::printf("\n");
  }
  return print_peer(whos, with_peer, binding) && reached;
}

bool print_training(const std::string& ranks, const json& placements, bool with_peer) {
  bool reached = true;
  std::printf("\nData parallel training, %s members, batches of 32, SGD; torch is DistributedDataParallel\n",
              ranks.c_str());
  for (const auto& [placement, whos] : placements.items()) {
    std::printf("\n  %s\n", placement.c_str());
    for (const auto& network : networks) reached &= print_network(whos, network, binds(placement), with_peer);
  }
  return reached;
}

/// What one direction of the link carries while it is full: all_reduce of two members sends the tensor each way.
bool print_link(const json& link) {
  if (link.contains("skipped")) {
    std::printf("\nBetween two machines: not measured (%s)  MISSED\n", link["skipped"].get<std::string>().c_str());
    return false;
  }
  const auto sample = link["time"].get<Sample>();
  const double bits = 8 * link["bytes"].get<double>() / (sample.p50 / 1e6);
  const double share = bits / link["bits per second"].get<double>();
  std::printf("\nBetween two machines, 1 Gbit/s: all_reduce of %s in %s, %.0f %% of the link (at least %.0f %%)  %s\n",
              readable_bytes(link["bytes"].get<size_t>()).c_str(), readable_time(sample.p50).c_str(), 100 * share,
              100 * least_share_of_link, verdict(share >= least_share_of_link));
  return share >= least_share_of_link;
}

}  // namespace

bool report(const json& results, bool with_peer) {
  bool reached = true;
  std::printf("\nCollectives, beside Gloo\n");
  for (const auto& [ranks, placements] : results["members"].items()) {
    reached &= print_ranks(ranks, placements, with_peer);
  }
  for (const auto& [ranks, placements] : results["training"].items()) {
    reached &= print_training(ranks, placements, with_peer);
  }
  if (results.contains("link")) reached &= print_link(results["link"]);
  return reached;
}

}  // namespace farad::bench
