#include "acer/plot.h"

#include <farad/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>

#include "acer/random.h"

namespace farad::acer {
namespace {

template <class... A>
std::string formatted(const char* format, A... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void include(const std::vector<double>& values) {
    for (const double value : values) {
      if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
    }
  }
  void be_sound() {
    if (!(low <= high)) low = 0, high = 1;
    if (low == high) low -= 1, high += 1;
  }
  double part(double value) const { return (value - low) / (high - low); }
};

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<') {
      safe += "&lt;";
    } else if (c == '&') {
      safe += "&amp;";
    } else {
      safe += c;
    }
  }
  return safe;
}

constexpr std::array colours{"#1f4e8c", "#f5a623", "#2e8b57", "#b0306a", "#6a5acd", "#555555"};
constexpr double width = 720, height = 400, left = 70, right = 20, top = 40, bottom = 50;

/// Places the values of a plot on the picture.
struct Frame {
  Range x, y;
  std::string point(double at, double value) const {
    return formatted("%.1f,%.1f ", left + (width - left - right) * x.part(at),
                     top + (height - top - bottom) * (1 - y.part(value)));
  }
};

std::string frame_svg(const Plot& plot, const Frame& frame) {
  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      width, height);
  for (int i = 0; i <= 4; ++i) {
    const double y = top + (height - top - bottom) * (4 - i) / 4, x = left + (width - left - right) * i / 4;
    svg +=
        formatted("<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left, width - right, y, y);
    svg += formatted("<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n", left - 8, y + 4,
                     frame.y.low + (frame.y.high - frame.y.low) * i / 4);
    svg += formatted("<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%.6g</text>\n", x, height - bottom + 20,
                     frame.x.low + (frame.x.high - frame.x.low) * i / 4);
  }
  svg += formatted("<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">", width / 2, height - 10) + escaped(plot.x_label) +
         "</text>\n" + formatted("<text x=\"%g\" y=\"24\">", left) + escaped(plot.y_label) + "</text>\n";
  return svg;
}

/// Where x is, on the straight line between the values beside it.
double value_at(const Line& run, double x) {
  const auto next = std::lower_bound(run.x.begin(), run.x.end(), x);
  if (next == run.x.end()) return run.y.back();
  const auto i = static_cast<size_t>(next - run.x.begin());
  if (i == 0) return run.y.front();
  const double part = (x - run.x[i - 1]) / (run.x[i] - run.x[i - 1]);
  return run.y[i - 1] + part * (run.y[i] - run.y[i - 1]);
}

}  // namespace

std::string to_svg(const Plot& plot) {
  Frame frame;
  for (const auto& line : plot.lines) {
    frame.x.include(line.x);
    for (const auto* values : {&line.y, &line.low, &line.high}) frame.y.include(*values);
  }
  if (plot.bars) frame.y.low = 0;
  frame.x.be_sound();
  frame.y.be_sound();
  auto svg = frame_svg(plot, frame);
  double legend = 300;
  for (size_t i = 0; i < plot.lines.size(); ++i) {
    const auto& line = plot.lines[i];
    const char* colour = colours[i % colours.size()];
    std::string points, band, back;
    for (size_t j = 0; j < line.x.size(); ++j) {
      if (std::isnan(line.y[j])) continue;
      if (plot.bars) points += frame.point(line.x[j], 0);
      points += frame.point(line.x[j], line.y[j]);
      if (plot.bars) points += frame.point(line.x[j], 0);
      if (line.low.empty()) continue;
      band += frame.point(line.x[j], line.high[j]);
      back = frame.point(line.x[j], line.low[j]) + back;
    }
    if (!band.empty())
      svg += "<polygon fill=\"" + std::string(colour) + "\" fill-opacity=\"0.2\" points=\"" + band + back + "\"/>\n";
    svg += "<polyline fill=\"none\" stroke=\"" + std::string(colour) +
           formatted("\" stroke-width=\"%d\"", plot.bars ? 6 : 2) + " points=\"" + points + "\"/>\n";
    svg += formatted("<text x=\"%g\" y=\"24\" fill=\"%s\">", legend, colour) + escaped(line.name) + "</text>\n";
    legend += 30 + 8 * static_cast<double>(line.name.size());
  }
  return svg + "</svg>\n";
}

Table::Table(const std::string& path) : path_(path) {
  std::ifstream in(path);
  if (!in) throw Error("[acer] cannot read " + path);
  std::string line, cell;
  std::getline(in, line);
  for (std::istringstream names(line); std::getline(names, cell, ',');) names_.push_back(cell);
  columns_.resize(names_.size());
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    for (auto& column : columns_) {
      cell.clear();
      std::getline(cells, cell, ',');
      column.push_back(cell.empty() ? std::nan("") : std::strtod(cell.c_str(), nullptr));
    }
  }
}

const std::vector<double>& Table::column(const std::string& name) const {
  std::string all;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == name) return columns_[i];
    all += (all.empty() ? "" : ", ") + names_[i];
  }
  throw Error("[acer] " + path_ + " has no column \"" + name + "\"; it has " + all);
}

double interquartile_mean(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  // The quarters at either end; what is left of a value that lies on their border counts in part.
  const double cut = static_cast<double>(values.size()) / 4;
  double sum = 0, weights = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto low = static_cast<double>(i), high = low + 1;
    const double weight = std::max(0.0, std::min(high, static_cast<double>(values.size()) - cut) - std::max(low, cut));
    sum += weight * values[i];
    weights += weight;
  }
  return sum / weights;
}

Interval interval_of(const std::vector<double>& values) {
  Random random(1);
  constexpr size_t draws = 1000;
  std::vector<double> means, drawn(values.size());
  for (size_t i = 0; i < draws; ++i) {
    for (double& value : drawn) value = values[static_cast<size_t>(random.below(static_cast<int64_t>(values.size())))];
    means.push_back(interquartile_mean(drawn));
  }
  std::sort(means.begin(), means.end());
  return {interquartile_mean(values), means[draws * 25 / 1000], means[draws * 975 / 1000 - 1]};
}

Line together(const std::string& name, const std::vector<Line>& runs, int points) {
  double first = 0, last = std::numeric_limits<double>::infinity();
  for (const auto& run : runs) {
    if (run.x.empty()) throw Error("[acer] " + run.name + " has nothing to plot");
    first = std::max(first, run.x.front());
    last = std::min(last, run.x.back());
  }
  Line line{name, {}, {}};
  for (int i = 0; i < points; ++i) {
    const double x = first + (last - first) * i / (points - 1);
    std::vector<double> values;
    for (const auto& run : runs) values.push_back(value_at(run, x));
    const auto interval = interval_of(values);
    line.x.push_back(x);
    line.y.push_back(interval.middle);
    if (runs.size() < 2) continue;
    line.low.push_back(interval.low);
    line.high.push_back(interval.high);
  }
  return line;
}

}  // namespace farad::acer
