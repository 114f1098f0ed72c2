#pragma once

#include <farad/optim.h>
#include <farad/rref.h>

#include <memory>
#include <vector>

#include "demo/station.h"
#include "demo/text.h"

namespace farad::demo {

/// A model in stages over the workers 0, 1, ... of a group, driven from one of them: micro-batches follow each other
/// through the stages and back, by a schedule. One thread, but for what it says.
///
/// After an error of step() the stages are of no use any more: make a new Pipeline and load a checkpoint.
class Pipeline {
 public:
  Pipeline(Worker& worker, const PipelineOptions& options);

  /// Those of one stage after the other, which is the order of the whole model's.
  const std::vector<RRef<at::Tensor>>& parameters() const { return parameters_; }

  /// Trains on a batch, in micro-batches, and gives its loss from before. Throws what went wrong first: PeerLost,
  /// Aborted, RemoteError; then nothing has changed, or what the error of an optimizer's step says.
  double step(const Batch& batch, AnyOptimizer& optimizer);

  /// Scores of the next character, of (batch, length) characters.
  at::Tensor scores(at::Tensor characters) const;

  /// By worker.
  std::vector<StationReport> reports() const;
  /// Spent in the optimizer's steps, so far.
  double optimizer_seconds() const { return optimizer_seconds_; }

 private:
  class Step;
  /// The loss of a micro-batch, on its way: nothing waits here. In a Context.
  RRef<at::Tensor> send_through(int micro_batch, at::Tensor inputs, at::Tensor targets) const;
  void abandon() const;

  Worker& worker_;
  const PipelineOptions options_;
  std::vector<RRef<std::shared_ptr<Station>>> stations_;
  std::vector<RRef<at::Tensor>> parameters_;
  double optimizer_seconds_ = 0;
};

}  // namespace farad::demo
