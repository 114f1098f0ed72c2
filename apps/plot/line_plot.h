#pragma once

#include <string>
#include <vector>

/// Drawings of numbers, for programs that show what they did.
namespace farad::plot {

struct Line {
  std::string name;
  std::string style;  ///< attributes of an SVG stroke: `stroke="#1f4e8c" stroke-width="2"`
  std::vector<double> values;
};

/// Lines over the steps 1, 2, 3, ..., with a legend. Lines may be of different length, or empty.
std::string to_svg(const std::vector<Line>& lines, const std::string& steps_name, const std::string& values_name);

}  // namespace farad::plot
