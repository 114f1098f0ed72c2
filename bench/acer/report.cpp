#include "acer/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "acer/compare.h"
#include "acer/plot.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr double least_ratio = 5, solved = 475;
// In the order in which they are told.
constexpr std::array contenders{"farad", "plain", "PFRL"};
constexpr std::array faults{"none", "accumulate", "stale-average", "freeze-first"};

double rate(const json& run, const char* what, const char* per) {
  return run[what].get<double>() / run[per].get<double>();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double median_rate(const json& runs, const char* what, const char* per) {
  std::vector<double> rates;
  for (const auto& run : runs) rates.push_back(rate(run, what, per));
  return median(rates);
}

/// farad's rate over the other's, in each turn that both have done.
std::vector<double> ratios_of(const json& farad, const json& other, const char* what, const char* per) {
  std::vector<double> ratios;
  for (const auto& one : farad) {
    for (const auto& beside : other) {
      if (one["seed"] == beside["seed"]) ratios.push_back(rate(one, what, per) / rate(beside, what, per));
    }
  }
  return ratios;
}

/// "12.3x (10.1 to 14.2)"
std::string text_of(const std::vector<double>& ratios) {
  if (ratios.empty()) return "no turn of both";
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  char text[64];
  std::snprintf(text, sizeof text, "%.1fx (%.1f to %.1f)", median(ratios), *low, *high);
  return text;
}

bool print_speed(const json& speed) {
  const auto& farad = speed["farad"];
  std::printf("\nCartPole-v1 with two workers, from the first step on; medians of %zu turns (least to most of them)\n",
              farad.size());
  std::printf("  %-6s %8s %10s %18s   %s\n", "", "steps/s", "updates/s", "steps/s of CPU time",
              "farad beside it, by steps/s, updates/s (both at least 5x) and steps/s of CPU time");
  bool reached = true;
  for (const std::string name : contenders) {
    if (!speed.contains(name) || speed[name].empty()) continue;
    const auto& runs = speed[name];
    std::printf("  %-6s %8.0f %10.0f %18.0f", name.c_str(), median_rate(runs, "steps", "seconds"),
                median_rate(runs, "updates", "seconds"), median_rate(runs, "steps", "cpu seconds"));
    if (name != "farad") {
      const auto steps = ratios_of(farad, speed[name], "steps", "seconds"),
                 updates = ratios_of(farad, speed[name], "updates", "seconds"),
                 work = ratios_of(farad, speed[name], "steps", "cpu seconds");
      const bool good = std::min(median(steps), median(updates)) >= least_ratio;
      std::printf("   %s, %s, %s  %s", text_of(steps).c_str(), text_of(updates).c_str(), text_of(work).c_str(),
                  good ? "reached" : "MISSED");
      reached &= good;
    }
    std::printf("\n");
  }
  return reached;
}

/// Steps until each of those that reached it was first evaluated at that.
std::vector<double> steps_to(double wanted, const json& runs) {
  std::vector<double> all;
  for (const auto& run : runs) {
    for (const auto& evaluation : run["evaluations"]) {
      if (evaluation[1].get<double>() < wanted) continue;
      all.push_back(evaluation[0].get<double>());
      break;
    }
  }
  return all;
}

json to_json(const acer::Interval& interval) {
  return {{"interquartile mean", interval.middle}, {"low", interval.low}, {"high", interval.high}};
}

/// "5 of 5   22500 (20000 to 25100)", of so many seeds; one that failed has not reached it.
json print_steps(const json& runs, int seeds) {
  if (runs.empty()) return std::printf("%9s  %-27s", "", "none: all failed"), json();
  const auto steps = steps_to(solved, runs);
  std::printf("%4zu of %d", steps.size(), seeds);
  if (steps.empty()) return std::printf("  %-27s", "never"), json();
  const auto interval = acer::interval_of(steps);
  char text[64];
  std::snprintf(text, sizeof text, "%.0f (%.0f to %.0f)", interval.middle, interval.low, interval.high);
  std::printf("  %-27s", text);
  return to_json(interval);
}

void print_learning(json& results, int seeds) {
  std::printf(
      "\nSteps until 20 greedy episodes bring %g on the mean; evaluated every 2,500; interquartile means and\n"
      "between which bounds 95 of 100 resamplings have them\n  %-8s %9s  steps\n",
      solved, "", "reached");
  for (const char* name : contenders) {
    if (!results["learning"].contains(name)) continue;
    std::printf("  %-8s", name);
    results["steps to 475"][name] = print_steps(results["learning"][name], seeds);
    std::printf("\n");
  }
}

/// How soon and how fast, of those that were measured in both, one below the other.
void print_together(const json& results, int seeds) {
  const auto &learning = results["learning"], &speed = results["speed"];
  std::printf("\nTogether\n  %-6s %9s  %-27s %8s %10s\n", "", "reached", "steps to 475", "steps/s", "updates/s");
  for (const char* name : contenders) {
    if (!learning.contains(name) || !speed.contains(name)) continue;
    std::printf("  %-6s", name);
    print_steps(learning[name], seeds);
    const auto& runs = speed[name];
    if (runs.empty()) {
      std::printf(" %8s %10s\n", "failed", "failed");
    } else {
      std::printf(" %8.0f %10.0f\n", median_rate(runs, "steps", "seconds"), median_rate(runs, "updates", "seconds"));
    }
  }
}

/// "480 (406 to 500)"
json print_return(const std::vector<double>& last) {
  if (last.empty()) return std::printf(" %-22s", "none"), json();
  const auto end = acer::interval_of(last);
  char text[64];
  std::snprintf(text, sizeof text, "%.0f (%.0f to %.0f)", end.middle, end.low, end.high);
  std::printf(" %-22s", text);
  return to_json(end);
}

/// "BROKEN, failed: B2 D4"
std::string verdict_in(const json& with_fault) {
  if (!with_fault.contains("audit")) return "none";
  const auto& audit = with_fault["audit"];
  std::string checks;
  for (const auto& check : audit["failed"]) checks += " " + check.get<std::string>();
  return audit["verdict"].get<std::string>() + (checks.empty() ? "" : ", failed:" + checks);
}

/// Whether nothing of farad's is among them.
bool print_failures(const json& failures) {
  bool farad_is_well = true;
  for (const auto& failure : failures) {
    const auto who = failure["who"].get<std::string>();
    const auto what = failure.contains("seed") ? "seed " + failure["seed"].dump() : failure["what"].get<std::string>();
    std::printf("\n%s, %s, FAILED: %s\n", who.c_str(), what.c_str(), failure["why"].get<std::string>().c_str());
    farad_is_well &= who != "farad";
  }
  return farad_is_well;
}

void print_faults(json& results, const std::string& out, int seeds) {
  std::printf("\nThe same with a defect planted, and what the audit says of it\n  %-14s %9s  %-27s %-22s %s\n", "",
              "reached", "steps", "return at the end", "audit");
  acer::CompareOptions picture;
  picture.out = out + "/faults.svg";
  picture.solved = solved;
  for (const std::string name : faults) {
    auto& here = results[name];
    std::printf("  %-14s", name.c_str());
    here["steps to 475"] = print_steps(here["runs"], seeds);
    std::vector<double> last;
    std::string directories;
    for (const auto& run : here["runs"]) {
      last.push_back(run["evaluations"].back()[1].get<double>());
      directories += (directories.empty() ? "" : ",") + out + "/" + name + "-" + run["seed"].dump();
    }
    here["return at the end"] = print_return(last);
    std::printf(" %s\n", verdict_in(here).c_str());
    if (!last.empty()) picture.groups.push_back((name == "none" ? "correct" : name) + "=" + directories);
  }
  if (picture.groups.empty()) return;
  std::printf("\nThe picture\n");
  acer::compare(picture);
}

}  // namespace

bool report(json& results, const std::string& out, int seeds) {
  bool reached = true;
  if (results.contains("speed")) reached = print_speed(results["speed"]);
  if (results.contains("learning")) print_learning(results, seeds);
  if (results.contains("speed") && results.contains("learning")) print_together(results, seeds);
  if (results.contains("faults")) print_faults(results["faults"], out, seeds);
  const auto skipped = results.value("skipped", json::object());  // items() does not keep it.
  for (const auto& [who, why] : skipped.items())
    std::printf("\n%s was not measured: %s\n", who.c_str(), why.get<std::string>().c_str());
  reached &= print_failures(results.value("failed", json::array()));
  return reached;
}

}  // namespace farad::bench
