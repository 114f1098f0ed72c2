#include "demo/curves.h"

#include <farad/error.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "plot/line_plot.h"

namespace farad::demo {
namespace {

template <class... A>
std::string formatted(const char* format, A... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

struct Range {
  double low = 0, high = 1;
};

Range range_of(const Curves& curves) {
  Range range{1e300, -1e300};
  for (const auto* curve : {&curves.pipeline, &curves.one_process}) {
    for (const double loss : *curve) range = {std::min(range.low, loss), std::max(range.high, loss)};
  }
  if (!(range.low < range.high)) return {range.high - 1, range.high + 1};
  return range;
}

constexpr const char* heading = "step,pipeline,one_process";

}  // namespace

double Curves::largest_difference() const {
  double most = 0;
  for (size_t i = 0; i < std::min(pipeline.size(), one_process.size()); i++)
    most = std::max(most, std::abs(pipeline[i] - one_process[i]));
  return most;
}

std::string plot(const Curves& curves, int width, int height) {
  const auto range = range_of(curves);
  const size_t steps = std::max(curves.pipeline.size(), curves.one_process.size());
  if (steps == 0) return "";
  std::vector<std::string> rows(static_cast<size_t>(height), std::string(static_cast<size_t>(width), ' '));
  const auto draw = [&](const std::vector<double>& curve, char mark) {
    for (int x = 0; x < width; x++) {
      const size_t step = steps == 1 ? 0 : static_cast<size_t>(x) * (steps - 1) / static_cast<size_t>(width - 1);
      if (step >= curve.size()) return;
      const double y = (range.high - curve[step]) / (range.high - range.low) * (height - 1);
      char& place = rows[static_cast<size_t>(std::lround(y))][static_cast<size_t>(x)];
      place = place == ' ' || place == mark ? mark : '#';
    }
  };
  draw(curves.pipeline, 'p');
  draw(curves.one_process, '1');
  std::string text;
  for (int y = 0; y < height; y++) {
    const double loss = range.high - (range.high - range.low) * y / std::max(height - 1, 1);
    const auto& row = rows[static_cast<size_t>(y)];
    text += formatted("  %5.2f |", loss) + row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  text += "        +" + std::string(static_cast<size_t>(width), '-') + "\n";
  text += formatted("         1%*zu\n", width - 1, steps);
  return text;
}

std::string to_svg(const Curves& curves) {
  return plot::to_svg({{"pipeline", "stroke=\"#f5a623\" stroke-width=\"6\" stroke-opacity=\"0.6\"", curves.pipeline},
                       {"one process", "stroke=\"#1f4e8c\" stroke-width=\"1.5\"", curves.one_process}},
                      "step", "loss (nats per character)");
}

std::string to_csv(const Curves& curves) {
  std::string csv = std::string(heading) + "\n";
  for (size_t i = 0; i < std::max(curves.pipeline.size(), curves.one_process.size()); i++) {
    const auto cell = [&](const std::vector<double>& curve) {
      return i < curve.size() ? formatted("%.9g", curve[i]) : std::string();
    };
    csv += std::to_string(i + 1) + "," + cell(curves.pipeline) + "," + cell(curves.one_process) + "\n";
  }
  return csv;
}

Curves from_csv(const std::string& csv) {
  std::istringstream in(csv);
  std::string line;
  std::getline(in, line);
  if (line != heading) throw Error("[demo] the losses begin with \"" + line + "\" instead of \"" + heading + "\"");
  Curves curves;
  for (size_t step = 1; std::getline(in, line); step++) {
    std::istringstream cells(line);
    std::string number, pipeline, one_process;
    std::getline(cells, number, ',');
    std::getline(cells, pipeline, ',');
    std::getline(cells, one_process, ',');
    if (number != std::to_string(step)) throw Error("[demo] the losses of step " + std::to_string(step) + ": " + line);
    if (!pipeline.empty()) curves.pipeline.push_back(std::strtod(pipeline.c_str(), nullptr));
    if (!one_process.empty()) curves.one_process.push_back(std::strtod(one_process.c_str(), nullptr));
  }
  return curves;
}

}  // namespace farad::demo
