#include "plot/line_plot.h"

#include <algorithm>
#include <cstdio>

namespace farad::plot {
namespace {

template <class... A>
std::string formatted(const char* format, A... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

struct Range {
  double low = 1e300, high = -1e300;
};

Range range_of(const std::vector<Line>& lines) {
  Range range;
  for (const auto& line : lines) {
    for (const double value : line.values) range = {std::min(range.low, value), std::max(range.high, value)};
  }
  if (!(range.low < range.high)) return {range.high - 1, range.high + 1};
  return range;
}

constexpr double width = 720, height = 400, left = 60, right = 20, top = 40, bottom = 50;
constexpr double sign = 36;  // of a line in the legend

/// The lines' names, from the right.
std::string legend_of(const std::vector<Line>& lines) {
  std::string svg;
  double end = width - right;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const double begin = end - sign - 7.5 * static_cast<double>(line->name.size());
    svg += formatted("<line x1=\"%g\" x2=\"%g\" y1=\"20\" y2=\"20\" ", begin, begin + sign - 6) + line->style + "/>";
    svg += formatted("<text x=\"%g\" y=\"24\">", begin + sign) + line->name + "</text>\n";
    end = begin - 12;
  }
  return svg;
}

}  // namespace

std::string to_svg(const std::vector<Line>& lines, const std::string& steps_name, const std::string& values_name) {
  const auto range = range_of(lines);
  size_t longest = 2;
  for (const auto& line : lines) longest = std::max(longest, line.values.size());
  const auto steps = static_cast<double>(longest);
  const auto x = [&](double step) { return left + (width - left - right) * step / (steps - 1); };
  const auto y = [&](double value) {
    return top + (height - top - bottom) * (range.high - value) / (range.high - range.low);
  };
  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      width, height);
  for (int i = 0; i <= 4; i++) {
    const double value = range.low + (range.high - range.low) * i / 4;
    svg += formatted("<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left, width - right,
                     y(value), y(value));
    svg += formatted("<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n", left - 8, y(value) + 4, value);
    const double step = (steps - 1) * i / 4;
    svg += formatted("<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%.0f</text>\n", x(step), height - bottom + 20,
                     step + 1);
  }
  svg +=
      formatted("<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">", width / 2, height - 10) + steps_name + "</text>\n";
  svg += formatted("<text x=\"%g\" y=\"24\">", left) + values_name + "</text>\n";
  for (const auto& line : lines) {
    svg += "<polyline fill=\"none\" " + line.style + " points=\"";
    for (size_t i = 0; i < line.values.size(); i++) {
      svg += formatted("%.1f,%.1f ", x(static_cast<double>(i)), y(line.values[i]));
    }
    svg += "\"/>\n";
  }
  return svg + legend_of(lines) + "</svg>\n";
}

}  // namespace farad::plot
