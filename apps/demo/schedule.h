#pragma once

#include <farad/fields.h>

#include <string_view>
#include <vector>

namespace farad::demo {

/// In which order the workers of a pipeline do their forwards and backwards.
enum class PipelineSchedule {
  OneForwardOneBackward,  ///< a backward as early as possible: worker w of W keeps at most W - w micro-batches
  GPipe,                  ///< all forwards, then all backwards: every worker keeps all micro-batches
  Interleaved,            ///< 1F1B with several stages per worker: smaller bubbles, more messages, more kept
};

/// "1f1b", "gpipe", "interleaved". Throws Error, saying what there is, for any other.
PipelineSchedule schedule_named(std::string_view name);

/// Stage s of workers * chunks lives at worker s % workers, as its chunk s / workers.
struct PipelineShape {
  int workers = 1;
  int chunks = 1;  ///< stages per worker; more than one for Interleaved only
  int micro_batches = 1;

  int stages() const { return workers * chunks; }
  FARAD_FIELDS(workers, chunks, micro_batches)
};

struct Action {
  enum class Kind { Forward, Backward };
  Kind kind;
  int micro_batch;
  int chunk;  ///< of the worker

  bool operator==(const Action&) const = default;
};

/// What a worker does with one batch, in order. Throws Error if the shape does not suit the schedule: Interleaved takes
/// micro-batches in rounds of one per worker, so their number has to be a multiple of that of the workers.
std::vector<Action> order_of(PipelineSchedule schedule, const PipelineShape& shape, int worker);

/// The most forwards whose backward is still to come, at any time: what has to be kept.
int most_kept(const std::vector<Action>& order);

}  // namespace farad::demo
