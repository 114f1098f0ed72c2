#include "acer/metrics.h"

#include <farad/error.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <numeric>

namespace farad::acer {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
constexpr size_t most_episodes = 100;

double over(double sum, double count) { return count > 0 ? sum / count : unknown; }

std::string text_of(double value) {
  if (std::isnan(value)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

/// How much of the targets' variance the critic knows beforehand.
double explained_variance(const Measures& sums) {
  const auto of = [&](Measure measure) { return sums[static_cast<size_t>(measure)]; };
  const double n = of(Measure::Steps);
  const auto variance = [&](Measure sum, Measure squares) {
    return over(of(squares), n) - std::pow(over(of(sum), n), 2);
  };
  const double whole = variance(Measure::Target, Measure::TargetSquared);
  return whole > 0 ? 1 - variance(Measure::Error, Measure::ErrorSquared) / whole : unknown;
}

}  // namespace

Metrics::Metrics(const Board& board, int workers, int64_t replay_capacity, size_t parameter_bytes)
    : replay_capacity_(replay_capacity),
      parameter_bytes_(parameter_bytes),
      seconds_before_(board.seconds),
      rates_(static_cast<size_t>(workers)) {
  for (int i = 0; i < workers; ++i) {
    before_.push_back(seen_of(board.tallies[static_cast<size_t>(i)]));
    episodes_before_.push_back(board.tallies[static_cast<size_t>(i)].episodes.load());
  }
}

Metrics::Seen Metrics::seen_of(const Tally& tally) {
  return {tally.steps.load(), tally.on_policy.load(), tally.off_policy.load(), tally.measures()};
}

void Metrics::collect_episodes(const Board& board) {
  for (size_t w = 0; w < before_.size(); ++w) {
    const auto& tally = board.tallies[w];
    const int64_t now = tally.episodes.load();
    auto& next = episodes_before_[w];
    next = std::max(next, now - static_cast<int64_t>(most_episodes));
    for (; next < now; ++next) {
      const auto at = static_cast<size_t>(next) % Tally::most_episodes;
      episodes_.push_back({tally.ends[at].load(), tally.returns[at].load(), tally.lengths[at].load()});
    }
  }
  std::sort(episodes_.begin(), episodes_.end(), [](const auto& a, const auto& b) { return a.end < b.end; });
  if (episodes_.size() > most_episodes)
    episodes_.erase(episodes_.begin(), episodes_.end() - static_cast<ptrdiff_t>(most_episodes));
}

Row Metrics::row(Board& board, const shared::Model& model, double seconds) {
  collect_episodes(board);
  const double elapsed = std::max(seconds - seconds_before_, 1e-9);
  seconds_before_ = seconds;
  Measures sums{};
  Seen total, since;
  int64_t episodes = 0, replay_size = 0;
  double largest_ratio = 0, made = 0;  // updates that workers have computed; several may be one of the model
  for (size_t w = 0; w < before_.size(); ++w) {
    auto& tally = board.tallies[w];
    const auto now = seen_of(tally);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += now.measures[i] - before_[w].measures[i];
    const int64_t steps = now.steps - before_[w].steps;
    const int64_t updates = now.on_policy + now.off_policy - before_[w].on_policy - before_[w].off_policy;
    total.steps += now.steps;
    total.on_policy += now.on_policy;
    total.off_policy += now.off_policy;
    since.steps += steps;
    made += static_cast<double>(updates);
    before_[w] = now;
    episodes += tally.episodes.load();
    replay_size += tally.replay_size.load();
    largest_ratio = std::max(largest_ratio, tally.largest_ratio.exchange(0));
    rates_[w] = {static_cast<double>(steps) / elapsed, static_cast<double>(updates) / elapsed};
  }

  const auto stats = model.stats();
  std::vector<uint64_t> stale;
  for (const auto& update : model.history()) stale.push_back(update.staleness());
  std::sort(stale.begin(), stale.end());

  std::vector<double> returns, lengths;
  for (const auto& [end, sum, length] : episodes_) {
    returns.push_back(sum);
    lengths.push_back(static_cast<double>(length));
  }
  const auto least = [&](const auto& values) {
    return values.empty() ? unknown : *std::min_element(values.begin(), values.end());
  };
  const auto most = [&](const auto& values) {
    return values.empty() ? unknown : *std::max_element(values.begin(), values.end());
  };
  const auto count = static_cast<double>(returns.size());
  const auto sum_of = [&](Measure measure) { return sums[static_cast<size_t>(measure)]; };
  const double steps = sum_of(Measure::Steps);
  const auto mean = [&](Measure measure) { return over(sum_of(measure), steps); };

  return {
      {"steps", static_cast<double>(total.steps)},
      {"updates", static_cast<double>(stats.version)},
      {"updates_off_policy", static_cast<double>(total.off_policy)},
      {"seconds", seconds},
      {"episodes", static_cast<double>(episodes)},
      {"return_mean", over(std::accumulate(returns.begin(), returns.end(), 0.0), count)},
      {"return_min", least(returns)},
      {"return_max", most(returns)},
      {"length_mean", over(std::accumulate(lengths.begin(), lengths.end(), 0.0), count)},
      {"length_min", least(lengths)},
      {"length_max", most(lengths)},
      {"evaluation_version", evaluation_ ? static_cast<double>(evaluation_->version) : unknown},
      {"evaluation_greedy", evaluation_ ? evaluation_->greedy.mean : unknown},
      {"evaluation_sampled", evaluation_ ? evaluation_->sampled.mean : unknown},
      {"policy_loss", mean(Measure::PolicyLoss)},
      {"correction_loss", mean(Measure::CorrectionLoss)},
      {"critic_loss", mean(Measure::CriticLoss)},
      {"entropy", mean(Measure::Entropy)},
      {"gradient_norm", over(sum_of(Measure::GradientNorm), made)},
      {"clipped_norm", over(sum_of(Measure::ClippedNorm), made)},
      {"ratio_mean", mean(Measure::Ratio)},
      {"ratio_max", largest_ratio},
      {"ratio_above_1", mean(Measure::RatioAbove1)},
      {"ratio_above_c", mean(Measure::RatioAboveC)},
      {"explained_variance", explained_variance(sums)},
      {"divergence", mean(Measure::Divergence)},
      {"bounded", mean(Measure::Bounded)},
      {"bound_effect", mean(Measure::Effect)},
      {"staleness_mean", stats.mean_staleness},
      {"staleness_p99", stale.empty() ? unknown : static_cast<double>(stale[(stale.size() - 1) * 99 / 100])},
      {"staleness_max", static_cast<double>(stats.max_staleness)},
      {"rolled_back", static_cast<double>(stats.rolled_back)},
      {"cut_off", static_cast<double>(stats.cut_off)},
      {"lost", static_cast<double>(stats.lost)},
      {"rejected", static_cast<double>(stats.rejected)},
      {"snapshots_torn", static_cast<double>(stats.snapshots_torn)},
      {"replay_fill", static_cast<double>(replay_size) / static_cast<double>(replay_capacity_)},
      {"replay_age", over(sum_of(Measure::ReplayAge), sum_of(Measure::ReplayDraws))},
      {"steps_per_second", static_cast<double>(since.steps) / elapsed},
      {"updates_per_second", made / elapsed},
      // Out of the segment with each pull of the policy and of its average, and into it with each update.
      {"bytes_moved",
       3.0 * static_cast<double>(parameter_bytes_) * static_cast<double>(total.on_policy + total.off_policy)},
  };
}

Row row_of(const Evaluation& evaluation, double seconds) {
  return {{"steps", static_cast<double>(evaluation.steps)},
          {"seconds", seconds},
          {"version", static_cast<double>(evaluation.version)},
          {"greedy_mean", evaluation.greedy.mean},
          {"greedy_min", evaluation.greedy.least},
          {"greedy_max", evaluation.greedy.most},
          {"sampled_mean", evaluation.sampled.mean},
          {"sampled_min", evaluation.sampled.least},
          {"sampled_max", evaluation.sampled.most}};
}

CsvFile::CsvFile(const std::string& path, bool append) : path_(path) {
  if (append) {
    std::ifstream before(path);
    std::getline(before, names_);
  }
  out_.open(path, append ? std::ios::app : std::ios::trunc);
  if (!out_) throw Error("[acer] cannot write " + path);
}

void CsvFile::write(const Row& row) {
  const auto line = [&](const auto& text_of_cell) {
    std::string text;
    for (size_t i = 0; i < row.size(); ++i) text += (i > 0 ? "," : "") + text_of_cell(row[i]);
    return text;
  };
  const auto names = line([](const auto& column) { return std::string(column.first); });
  if (names_.empty()) out_ << (names_ = names) << "\n";
  if (names_ != names) {
    throw Error("[acer] " + path_ + " has other columns than this farad writes: go on with the one that began it");
  }
  out_ << line([](const auto& column) { return text_of(column.second); }) << "\n";
  if (!out_.flush()) throw Error("[acer] cannot write " + path_);
}

}  // namespace farad::acer
