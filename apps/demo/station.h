#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/fields.h>
#include <farad/future.h>
#include <farad/rref.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "demo/model.h"
#include "demo/schedule.h"
#include "demo/turns.h"

namespace farad::demo {

struct PipelineOptions {
  ModelOptions model;
  PipelineSchedule schedule = PipelineSchedule::OneForwardOneBackward;
  PipelineShape shape;
  FARAD_FIELDS(model, schedule, shape)
};

/// What a station has done since it was last asked.
struct StationReport {
  double forward_seconds = 0;   ///< computing forwards, without waiting for turns and inputs
  double backward_seconds = 0;  ///< from the arrival of gradients to their leaving
  double input_seconds = 0;     ///< when its turn had come: until the stage before was done and its message here
  double cpu_seconds = 0;       ///< of its process, whatever it did
  int most_kept = 0;            ///< micro-batches whose backward had not ended, of all its chunks; since the beginning
  FARAD_FIELDS(forward_seconds, backward_seconds, input_seconds, cpu_seconds, most_kept)
};

/// That this process has used so far.
double cpu_seconds();

/// One worker's share of a pipeline: its parts of the model, and the order in which it does things. Lives at that
/// worker and is called by reference.
class Station : public std::enable_shared_from_this<Station> {
 public:
  /// The station of worker `place` of the pipeline.
  Station(const PipelineOptions& options, int place);

  /// What a chunk makes of its input, which it fetches when it is its turn. In a Context.
  Future<at::Tensor> forward(int micro_batch, int chunk, RRef<at::Tensor> input);
  /// The same in the last stage, whose scores are compared with the targets right here.
  Future<at::Tensor> loss(int micro_batch, RRef<at::Tensor> input, at::Tensor targets);
  /// Forwards that wait for their turn fail, now and later.
  void abandon(std::string why);

  /// What a chunk makes of `input`: at once, and without gradients.
  at::Tensor apply(int chunk, at::Tensor input);
  std::vector<RRef<at::Tensor>> parameters(int chunk);
  StationReport report();

 private:
  Future<at::Tensor> in_turn(int micro_batch, int chunk, RRef<at::Tensor> input,
                             std::function<at::Tensor(at::Tensor)> finish);
  at::Tensor compute(int micro_batch, int chunk, const at::Tensor& input,
                     const std::function<at::Tensor(at::Tensor)>& finish);

  std::vector<std::shared_ptr<ModelPart>> parts_;  // by chunk
  Turns turns_;
  std::atomic<int64_t> forward_ns_ = 0;
  std::atomic<int64_t> backward_ns_ = 0;
  std::atomic<int64_t> input_ns_ = 0;
  std::atomic<double> cpu_seconds_ = 0;  // when last asked
};

}  // namespace farad::demo
