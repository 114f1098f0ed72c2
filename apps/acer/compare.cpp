#include "acer/compare.h"

#include <farad/error.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "acer/plot.h"

namespace farad::acer {
namespace {

struct Group {
  std::string name;
  std::vector<Line> runs;
};

Line read_run(const std::string& directory, const CompareOptions& options) {
  const auto from = [&](const char* file) {
    const Table table(directory + file);
    Line run{directory, {}, {}};
    const auto &x = table.column(options.over), &y = table.column(options.metric);
    for (size_t i = 0; i < x.size(); ++i) {
      if (!std::isnan(y[i]) && (run.x.empty() || x[i] > run.x.back())) run.x.push_back(x[i]), run.y.push_back(y[i]);
    }
    return run;
  };
  const bool evaluated = options.metric.starts_with("greedy_") || options.metric.starts_with("sampled_");
  return from(evaluated ? "/evaluations.csv" : "/metrics.csv");
}

/// Where a run was first at that or above.
std::optional<double> first_at(double wanted, const Line& run) {
  for (size_t i = 0; i < run.x.size(); ++i) {
    if (run.y[i] >= wanted) return run.x[i];
  }
  return {};
}

Group read_group(const std::string& text, const CompareOptions& options) {
  const auto equals = text.find('=');
  Group group;
  std::istringstream directories(equals == std::string::npos ? text : text.substr(equals + 1));
  for (std::string directory; std::getline(directories, directory, ',');)
    group.runs.push_back(read_run(directory, options));
  if (group.runs.empty()) throw Error("[acer] \"" + text + "\" names no run");
  group.name = equals == std::string::npos ? std::filesystem::path(text).filename().string() : text.substr(0, equals);
  return group;
}

}  // namespace

std::optional<double> steps_to(double wanted, const std::string& directory) {
  return first_at(wanted, read_run(directory, {}));
}

void compare(const CompareOptions& options) {
  Plot plot{options.over, options.metric, {}};
  for (const auto& text : options.groups) {
    const auto group = read_group(text, options);
    plot.lines.push_back(together(group.name, group.runs));
    std::vector<double> last, reached;
    for (const auto& run : group.runs) {
      last.push_back(run.y.back());
      if (options.solved == 0) continue;
      if (const auto when = first_at(options.solved, run)) reached.push_back(*when);
    }
    const auto end = interval_of(last);
    std::printf("%s: %zu runs, %s at the end %.2f (%.2f to %.2f)", group.name.c_str(), group.runs.size(),
                options.metric.c_str(), end.middle, end.low, end.high);
    if (options.solved != 0) {
      std::printf("; %zu reached %g", reached.size(), options.solved);
      const auto when = reached.empty() ? Interval{} : interval_of(reached);
      if (!reached.empty())
        std::printf(", at %.0f %s (%.0f to %.0f)", when.middle, options.over.c_str(), when.low, when.high);
    }
    std::printf("\n");
  }
  std::ofstream out(options.out);
  out << to_svg(plot);
  if (!out.flush()) throw Error("[acer] cannot write " + options.out);
  std::printf("%s\n", options.out.c_str());
}

}  // namespace farad::acer
