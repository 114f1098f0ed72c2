#include "demo/schedule.h"

#include <farad/error.h>

#include <algorithm>
#include <string>

namespace farad::demo {
namespace {

/// How many forwards a worker does before its first backward.
int warm_up(PipelineSchedule schedule, const PipelineShape& shape, int worker) {
  const int all = shape.micro_batches * shape.chunks;
  const int behind = shape.workers - 1 - worker;
  switch (schedule) {
    case PipelineSchedule::OneForwardOneBackward:
      return std::min(behind + 1, all);
    case PipelineSchedule::GPipe:
      return all;
    case PipelineSchedule::Interleaved:
      // All chunks but the last for a round of micro-batches; then twice the way to the last worker, because a
      // micro-batch comes round again before the first backward.
      return std::min((shape.chunks - 1) * shape.workers + 2 * behind + 1, all);
  }
  return all;
}

/// The n-th forward of a worker. Rounds of `workers` micro-batches go through all its chunks before the next round.
Action forward(const PipelineShape& shape, int n) {
  const int round = shape.workers * shape.chunks;
  if (shape.chunks == 1) return {Action::Kind::Forward, n, 0};
  return {Action::Kind::Forward, n / round * shape.workers + n % shape.workers, n % round / shape.workers};
}

/// The n-th backward: as the forwards, with the chunks the other way round.
Action backward(const PipelineShape& shape, int n) {
  const Action same = forward(shape, n);
  return {Action::Kind::Backward, same.micro_batch, shape.chunks - 1 - same.chunk};
}

void check(PipelineSchedule schedule, const PipelineShape& shape, int worker) {
  if (shape.workers < 1 || shape.chunks < 1 || shape.micro_batches < 1)
    throw Error("[pipeline] there has to be at least one worker, one stage per worker and one micro-batch");
  if (worker < 0 || worker >= shape.workers)
    throw Error("[pipeline] there is no worker " + std::to_string(worker) + " among " + std::to_string(shape.workers));
  if (schedule != PipelineSchedule::Interleaved && shape.chunks > 1)
    throw Error("[pipeline] " + std::to_string(shape.chunks) + " stages per worker need the interleaved schedule");
  if (shape.chunks > 1 && shape.micro_batches % shape.workers != 0) {
    throw Error("[pipeline] interleaved: " + std::to_string(shape.micro_batches) +
                " micro-batches are no multiple of " + std::to_string(shape.workers) + " workers");
  }
}

}  // namespace

PipelineSchedule schedule_named(std::string_view name) {
  if (name == "1f1b") return PipelineSchedule::OneForwardOneBackward;
  if (name == "gpipe") return PipelineSchedule::GPipe;
  if (name == "interleaved") return PipelineSchedule::Interleaved;
  throw Error("[pipeline] there is no schedule \"" + std::string(name) + "\"; there are 1f1b, gpipe, interleaved");
}

std::vector<Action> order_of(PipelineSchedule schedule, const PipelineShape& shape, int worker) {
  check(schedule, shape, worker);
  const int all = shape.micro_batches * shape.chunks;
  const int first = warm_up(schedule, shape, worker);
  std::vector<Action> order;
  order.reserve(2 * static_cast<size_t>(all));
  for (int n = 0; n < first; n++) order.push_back(forward(shape, n));
  for (int n = 0; n < all; n++) {
    order.push_back(backward(shape, n));
    if (first + n < all) order.push_back(forward(shape, first + n));
  }
  return order;
}

int most_kept(const std::vector<Action>& order) {
  int kept = 0, most = 0;
  for (const auto& action : order) {
    kept += action.kind == Action::Kind::Forward ? 1 : -1;
    most = std::max(most, kept);
  }
  return most;
}

}  // namespace farad::demo
