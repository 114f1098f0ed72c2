#pragma once

#include <string>
#include <vector>

namespace farad::demo {

/// The losses of two runs, step by step; the second may be shorter, or empty.
struct Curves {
  std::vector<double> pipeline;
  std::vector<double> one_process;

  /// The largest difference at any step that both have.
  double largest_difference() const;
};

/// Drawn with characters: p, 1, and # where both are.
std::string plot(const Curves& curves, int width, int height);
std::string to_svg(const Curves& curves);

/// "step,pipeline,one_process".
std::string to_csv(const Curves& curves);
/// What to_csv has made. Throws Error, naming the line, if it is something else.
Curves from_csv(const std::string& csv);

}  // namespace farad::demo
