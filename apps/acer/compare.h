#pragma once

#include <optional>
#include <string>
#include <vector>

namespace farad::acer {

struct CompareOptions {
  /// "NAME=DIRECTORY,DIRECTORY,...": runs that are shown as one curve; without "NAME=", by the directory's name.
  std::vector<std::string> groups;
  std::string metric = "greedy_mean";  ///< a column of evaluations.csv, or else of metrics.csv
  std::string over = "steps";          ///< or "seconds"
  std::string out = "acer.svg";
  double solved = 0;  ///< also tells when each run was first at or above this; 0: does not
};

/// After how many steps the greedy evaluations of the run in this directory were first at that or above; nothing if
/// they never were.
std::optional<double> steps_to(double wanted, const std::string& directory);

/// Draws the runs' curves, each group's interquartile mean with a band of 95 % confidence, and prints a line for each
/// group. Throws Error if something cannot be read.
void compare(const CompareOptions& options);

}  // namespace farad::acer
