#pragma once

#include <optional>
#include <string>
#include <vector>

#include "acer/board.h"
#include "acer/evaluation.h"
#include "acer/metrics.h"
#include "acer/settings.h"

namespace farad::acer {

/// What a training came to.
struct Result {
  bool interrupted = false;
  int64_t steps = 0;
  uint64_t updates = 0;
  double seconds = 0;  ///< with those before it was resumed
  int replaced = 0;    ///< workers that were killed, and went on as another process
  std::vector<Evaluation> evaluations;
  std::optional<double> goal;          ///< the mean return at which the environment counts as solved, if it names one
  std::optional<double> solved_after;  ///< so many steps; those before it was resumed count
};

/// Trains with the settings' number of processes, and one more that evaluates, and writes what comes of it to the
/// settings' directory; tells of it on standard output. `board.stop` ends it early and in good order.
///
/// Forks: libtorch must not have run in parallel in this process. Throws Error if a worker fails.
Result train(const Settings& settings, Board& board);

}  // namespace farad::acer
