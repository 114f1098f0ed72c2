#pragma once

#include <farad/worker.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "demo/schedule.h"
#include "demo/text.h"
#include "demo/training.h"

namespace farad::demo {

struct ShowOptions {
  int workers = 3;
  std::optional<int64_t> steps = {};  ///< of the whole run; unset: as it was begun with, or TrainingOptions::steps
  uint64_t seed = 1;
  PipelineSchedule schedule = PipelineSchedule::OneForwardOneBackward;
  bool resume = false;
  std::string out = "out/demo";
};

/// The model that is shown and how it is trained.
TrainingOptions training_options(const ShowOptions& options, const Text& text);

/// Where the checkpoints of such a run lie.
std::string checkpoints_of(const ShowOptions& options);

/// What worker 0 does: trains the model over all workers, then in this process alone, and tells of both. As soon as
/// `stop` is true it saves what it has and returns.
void show(Worker& worker, const ShowOptions& options, const std::atomic<bool>& stop);

}  // namespace farad::demo
