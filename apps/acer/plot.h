#pragma once

#include <string>
#include <vector>

namespace farad::acer {

/// A line of a plot, and where there are `low` and `high` a band around it.
struct Line {
  std::string name;
  std::vector<double> x, y, low{}, high{};
};

struct Plot {
  std::string x_label, y_label;
  std::vector<Line> lines;
  bool bars = false;  ///< the values of the first line as bars
};

std::string to_svg(const Plot& plot);

/// A CSV file with names in its first line; cells that are empty are not a number.
class Table {
 public:
  /// Throws Error if it cannot be read.
  explicit Table(const std::string& path);
  /// Throws Error, naming those there are, if there is no such column.
  const std::vector<double>& column(const std::string& name) const;

 private:
  const std::string path_;
  std::vector<std::string> names_;
  std::vector<std::vector<double>> columns_;
};

/// The mean of the middle half, which outliers among few runs do not sway.
double interquartile_mean(std::vector<double> values);

struct Interval {
  double middle = 0, low = 0, high = 0;
};
/// The interquartile mean, and between which bounds it is in 95 of 100 cases when as many values are drawn from these
/// again, with replacement.
Interval interval_of(const std::vector<double>& values);

/// A curve of several runs at once: at `points` places between the first and the last that all runs reach.
Line together(const std::string& name, const std::vector<Line>& runs, int points = 60);

}  // namespace farad::acer
