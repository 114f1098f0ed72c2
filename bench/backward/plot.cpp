#include "backward/plot.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

namespace farad::bench {
namespace {

constexpr double width = 420, height = 300, left = 62, right = 66, top = 34, bottom = 40;
constexpr const char* colours[] = {"#1b6ca8", "#c8553d", "#3f7d20", "#6d597a"};

/// A logarithmic axis between two powers of ten, on so many pixels.
struct Axis {
  double from, to, start, end;
  static Axis around(double least, double most, double start, double end) {
    return {std::floor(std::log10(least)), std::max(std::ceil(std::log10(most)), std::floor(std::log10(least)) + 1),
            start, end};
  }
  double at(double value) const { return start + (std::log10(value) - from) / (to - from) * (end - start); }
};

std::string text(double x, double y, const std::string& what, const char* anchor, const char* more = "") {
  std::ostringstream out;
  out << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\"" << more << ">" << what
      << "</text>\n";
  return out.str();
}

std::string line(double x1, double y1, double x2, double y2) {
  std::ostringstream out;
  out << "<line x1=\"" << x1 << "\" y1=\"" << y1 << "\" x2=\"" << x2 << "\" y2=\"" << y2 << "\" stroke=\"#d0d0d0\"/>\n";
  return out.str();
}

std::string readable(double power) {
  std::ostringstream out;
  out << std::pow(10.0, power);
  return out.str();
}

}  // namespace

std::string plot_scaling(const nlohmann::json& scaling, const std::string& what, const std::string& title) {
  std::map<std::string, std::map<double, double>> lines;
  double least_x = 1e300, most_x = 0, least_y = 1e300, most_y = 0;
  for (const auto& [shape, sizes] : scaling.items()) {
    for (const auto& [size, figures] : sizes.items()) {
      const double x = std::stod(size), y = figures[what].get<double>();
      lines[shape][x] = y;
      least_x = std::min(least_x, x), most_x = std::max(most_x, x);
      least_y = std::min(least_y, y), most_y = std::max(most_y, y);
    }
  }
  const auto x = Axis::around(least_x, most_x, left, width - right);
  const auto y = Axis::around(least_y, most_y, height - bottom, top);
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\"" << height
      << "\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      << text(left, 18, title, "start", " font-size=\"13\"");
  for (double power = x.from; power <= x.to; ++power) {
    const double at = x.at(std::pow(10, power));
    out << line(at, top, at, height - bottom) << text(at, height - bottom + 15, readable(power), "middle");
  }
  for (double power = y.from; power <= y.to; ++power) {
    const double at = y.at(std::pow(10, power));
    out << line(left, at, width - right, at) << text(left - 6, at + 4, readable(power), "end");
  }
  out << text((left + width - right) / 2, height - 8, "workers", "middle");
  size_t number = 0;
  for (const auto& [shape, points] : lines) {
    const char* colour = colours[number++ % std::size(colours)];
    out << "<polyline fill=\"none\" stroke=\"" << colour << "\" stroke-width=\"2\" points=\"";
    for (const auto& [workers, figure] : points) out << x.at(workers) << "," << y.at(figure) << " ";
    out << "\"/>\n";
    const auto& [workers, figure] = *points.rbegin();
    const std::string fill = std::string(" fill=\"") + colour + "\"";
    out << text(x.at(workers) + 6, y.at(figure) + 4, shape, "start", fill.c_str());
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace farad::bench
