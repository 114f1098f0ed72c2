#include "demo/training.h"

#include <c10/core/GradMode.h>

#include <algorithm>

namespace farad::demo {
namespace {

torch::optim::AdamWOptions optimizer_options(const TrainingOptions& options) {
  return torch::optim::AdamWOptions(options.learning_rate).betas({0.9, 0.98}).weight_decay(0.01);
}

RateFactor rate_factor(const TrainingOptions& options) {
  const int64_t warm_up = std::clamp<int64_t>(options.steps / 4, 1, 10);
  return linear_warm_up(warm_up, 0.1, cosine_decay(std::max<int64_t>(options.steps - warm_up, 1), 0.05));
}

}  // namespace

PipelineTraining::PipelineTraining(Worker& worker, const Text& text, const TrainingOptions& options)
    : text_(text),
      options_(options),
      pipeline_(worker, options.pipeline),
      optimizer_(worker, pipeline_.parameters(), optimizer_options(options)),
      rate_(optimizer_, rate_factor(options)) {}

double PipelineTraining::step(int64_t number) {
  rate_.resume(number);
  return pipeline_.step(text_.batch(options_.seed, number, options_.batch, options_.pipeline.model.context),
                        optimizer_);
}

std::vector<at::Tensor> PipelineTraining::parameters() const {
  std::vector<at::Tensor> values;
  for (const auto& parameter : pipeline_.parameters()) values.push_back(parameter.to_here());
  return values;
}

LocalTraining::LocalTraining(const Text& text, const TrainingOptions& options)
    : text_(text),
      options_(options),
      model_(options.pipeline.model, 0, options.pipeline.model.blocks),
      optimizer_(model_.parameters(), optimizer_options(options)),
      factor_(rate_factor(options)) {}

double LocalTraining::step(int64_t number) {
  const auto& pipeline = options_.pipeline;
  const auto batch = text_.batch(options_.seed, number, options_.batch, pipeline.model.context);
  const int count = pipeline.shape.micro_batches;
  const auto inputs = batch.inputs.chunk(count), targets = batch.targets.chunk(count);
  optimizer_.zero_grad();
  double sum = 0;
  for (size_t i = 0; i < inputs.size(); i++) {
    const auto loss = surprise(model_.forward(inputs[i]), targets[i]);
    (loss / count).backward();
    sum += loss.item<double>();
  }
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(options_.learning_rate * factor_(number));
  optimizer_.step();
  return sum / count;
}

at::Tensor LocalTraining::scores(const at::Tensor& characters) {
  const at::NoGradGuard no_grad;
  return model_.forward(characters);
}

}  // namespace farad::demo
