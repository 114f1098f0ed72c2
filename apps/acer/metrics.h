#pragma once

#include <farad/shared.h>

#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "acer/board.h"
#include "acer/evaluation.h"

namespace farad::acer {

/// Names and values, in the order of the columns. Values that are not known yet are not a number.
using Row = std::vector<std::pair<std::string, double>>;

/// Of evaluations.csv. `seconds` that the training has taken.
Row row_of(const Evaluation& evaluation, double seconds);

/// What a training has come to, from row to row. Sums and rates are of the time since the last row, returns of the last
/// hundred episodes, staleness of all updates, but its p99 of the last thousand. `updates` are those of the model,
/// which may each stand for several, as are those that were rolled back, cut off, lost or rejected; rates and bytes are
/// of what workers compute.
class Metrics {
 public:
  /// From what the board has counted so far. `replay_capacity`: steps of all workers.
  Metrics(const Board& board, int workers, int64_t replay_capacity, size_t parameter_bytes);

  void heard(const Evaluation& evaluation) { evaluation_ = evaluation; }

  /// `seconds` that the training has taken.
  Row row(Board& board, const shared::Model& model, double seconds);

  struct Rate {
    double steps = 0, updates = 0;  ///< a second
  };
  /// Of each worker, between the last two rows.
  const std::vector<Rate>& rates() const { return rates_; }

 private:
  struct Seen {
    int64_t steps = 0, on_policy = 0, off_policy = 0;
    Measures measures{};
  };
  static Seen seen_of(const Tally& tally);
  void collect_episodes(const Board& board);

  int64_t replay_capacity_;
  size_t parameter_bytes_;
  double seconds_before_;
  std::vector<Seen> before_;
  std::vector<int64_t> episodes_before_;
  struct Episode {
    int64_t end = 0;
    double sum_of_rewards = 0;
    int64_t length = 0;
  };
  std::vector<Episode> episodes_;  // at most a hundred, the last of all workers
  std::optional<Evaluation> evaluation_;
  std::vector<Rate> rates_;
};

/// A file of rows, the first of which decides the columns; each row is there as soon as it is written.
class CsvFile {
 public:
  /// `append`: goes on with a file that there is.
  CsvFile(const std::string& path, bool append);
  /// Throws Error if that fails, or if the file has other columns.
  void write(const Row& row);

 private:
  const std::string path_;
  std::string names_;  // as the file has them; empty if there are none yet
  std::ofstream out_;
};

}  // namespace farad::acer
