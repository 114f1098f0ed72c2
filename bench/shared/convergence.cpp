#include "shared/convergence.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "plot/line_plot.h"

namespace farad::bench {
namespace {

constexpr const char* colours[] = {"#1b6ca8", "#c8553d", "#3f7d20", "#6d597a", "#b8860b"};
constexpr double smallest = 1e-12;  // Beyond that it is rounding.

}  // namespace

std::string draw_convergence(const nlohmann::json& policies, int milliseconds) {
  std::vector<plot::Line> lines;
  for (const auto& [policy, figures] : policies.items()) {
    if (!figures.contains("losses")) continue;
    const std::string colour = colours[lines.size() % std::size(colours)];
    auto& line = lines.emplace_back(plot::Line{policy, "stroke=\"" + colour + "\" stroke-width=\"2\"", {}});
    for (const double loss : figures["losses"]) line.values.push_back(std::log10(std::max(loss, smallest)));
  }
  char axis[64];
  std::snprintf(axis, sizeof axis, "moment of looking at it, all within %.1f s", milliseconds / 1000.0);
  return plot::to_svg(lines, axis, "log10 of the loss");
}

}  // namespace farad::bench
