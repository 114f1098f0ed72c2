#include "acer/journal.h"

#include <farad/error.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>

#include "acer/plot.h"

namespace farad::acer {
namespace {

void write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  if (!out.flush()) throw Error("[acer] cannot write " + path);
}

}  // namespace

Journal::Journal(const std::string& out, std::optional<int64_t> after)
    : out_(out),
      rows_(out + "/metrics.csv", after.has_value()),
      rates_(out + "/workers.csv", after.has_value()),
      evaluations_(out + "/evaluations.csv", after.has_value()),
      events_(out, after),
      terminal_(::isatty(STDOUT_FILENO) != 0) {}

void Journal::report(const Row& metrics, const std::vector<Metrics::Rate>& rates) {
  rows_.write(metrics);
  const double steps = metrics.front().second;
  events_.write(static_cast<int64_t>(steps), {metrics.begin() + 1, metrics.end()});
  for (size_t w = 0; w < rates.size(); ++w) {
    rates_.write({{"steps", steps},
                  {"worker", static_cast<double>(w)},
                  {"steps_per_second", rates[w].steps},
                  {"updates_per_second", rates[w].updates}});
  }
  const auto value = [&](const char* name) {
    for (const auto& [column, number] : metrics) {
      if (column == name) return number;
    }
    return std::nan("");
  };
  if (value("steps_per_second") == 0) return;  // Nothing new to say.
  const double evaluated = value("evaluation_greedy");
  std::printf("%s  %7.0f steps, return %7.2f, ", terminal_ ? "\r" : "", steps, value("return_mean"));
  if (!std::isnan(evaluated)) std::printf("evaluated %7.2f, ", evaluated);
  std::printf("%6.0f steps/s, %5.0f updates/s, staleness %.2f%s", value("steps_per_second"),
              value("updates_per_second"), value("staleness_mean"), terminal_ ? "  " : "\n");
  std::fflush(stdout);
}

void Journal::heard(const Evaluation& evaluation, double seconds) { evaluations_.write(row_of(evaluation, seconds)); }

void Journal::tell(const std::string& what) const {
  std::printf("%s  %s%s", terminal_ ? "\r" : "", what.c_str(), terminal_ ? "  " : "\n");
  std::fflush(stdout);
}

void Journal::complain(const std::string& what) const {
  std::fprintf(stderr, "%sfarad acer: %s\n", terminal_ ? "\n" : "", what.c_str());
}

void Journal::end_line() const {
  if (terminal_) std::printf("\n");
}

void Journal::draw(const std::vector<uint64_t>& staleness) const {
  const Table metrics(out_ + "/metrics.csv"), evaluations(out_ + "/evaluations.csv");
  for (const std::string over : {"steps", "seconds"}) {
    const Plot plot{over,
                    "return",
                    {{"last 100 episodes", metrics.column(over), metrics.column("return_mean")},
                     {"evaluated", evaluations.column(over), evaluations.column("greedy_mean")}}};
    write_text(out_ + "/return_by_" + over + ".svg", to_svg(plot));
  }
  std::map<uint64_t, double> counts;
  for (const uint64_t late : staleness) ++counts[late];
  Line bars{"of the last " + std::to_string(staleness.size()), {}, {}};
  for (const auto& [late, count] : counts) {
    bars.x.push_back(static_cast<double>(late));
    bars.y.push_back(count);
  }
  write_text(out_ + "/staleness.svg", to_svg({"staleness", "updates", {bars}, true}));
}

}  // namespace farad::acer
