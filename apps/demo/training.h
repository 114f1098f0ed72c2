#pragma once

#include <farad/optim.h>
#include <farad/schedule.h>
#include <torch/optim/adamw.h>

#include <cstdint>
#include <string>
#include <vector>

#include "demo/pipeline.h"
#include "demo/text.h"

namespace farad::demo {

struct TrainingOptions {
  PipelineOptions pipeline;  ///< what is not about stages holds for one process as well
  int64_t batch = 18;        ///< passages per step
  int64_t steps = 400;       ///< of the whole run; the learning rate ends with it
  double learning_rate = 4e-3;
  uint64_t seed = 1;  ///< of the order of passages
};

/// The training of a model on a text, in whatever place. The step's number decides everything about it but the state of
/// the model, so runs that have the same state go on alike.
class Training {
 public:
  virtual ~Training() = default;
  /// Steps are taken in order; gives the loss before it.
  virtual double step(int64_t number) = 0;
  virtual at::Tensor scores(const at::Tensor& characters) = 0;
};

/// Over the workers of a group.
class PipelineTraining final : public Training {
 public:
  PipelineTraining(Worker& worker, const Text& text, const TrainingOptions& options);

  double step(int64_t number) override;
  at::Tensor scores(const at::Tensor& characters) override { return pipeline_.scores(characters); }

  void save(const std::string& directory) { optimizer_.save(directory); }
  /// What save() has written, with any number of workers.
  void load(const std::string& directory) { optimizer_.load(directory); }

  std::vector<at::Tensor> parameters() const;
  const Pipeline& pipeline() const { return pipeline_; }

 private:
  const Text& text_;
  const TrainingOptions options_;
  Pipeline pipeline_;
  DistributedOptimizer<torch::optim::AdamW> optimizer_;
  Schedule rate_;
};

/// The same in one process with libtorch alone.
class LocalTraining final : public Training {
 public:
  LocalTraining(const Text& text, const TrainingOptions& options);

  double step(int64_t number) override;
  at::Tensor scores(const at::Tensor& characters) override;

  std::vector<at::Tensor> parameters() const { return model_.parameters(); }

 private:
  const Text& text_;
  const TrainingOptions options_;
  ModelPart model_;
  torch::optim::AdamW optimizer_;
  const RateFactor factor_;
};

}  // namespace farad::demo
