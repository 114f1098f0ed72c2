// The demo's training as a pipeline over three workers, and in one process: what distribution costs.

#include <ATen/ops/rand.h>
#include <farad/rref.h>
#include <farad/worker.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/member.h"
#include "common/sample.h"
#include "demo/show.h"
#include "training/roles.h"

namespace farad::bench {
namespace {

using nlohmann::json;

constexpr int warm_up = 5, steps = 40;

Sample time_steps(demo::Training& training) {
  std::vector<double> times;
  for (int64_t i = warm_up; i < warm_up + steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    training.step(i);
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  return summarise(std::move(times));
}

/// Of a step: "wall", a Sample; in milliseconds "cpu" of all processes, the optimizer, and what each worker did.
json over_workers(Worker& worker, const demo::Text& text, const demo::TrainingOptions& options) {
  demo::PipelineTraining training(worker, text, options);
  for (int64_t i = 0; i < warm_up; ++i) training.step(i);
  training.pipeline().reports();  // What was before is of no interest.
  const double optimizer = training.pipeline().optimizer_seconds();
  json result;
  result["wall"] = time_steps(training);
  double cpu = 0;
  for (const auto& report : training.pipeline().reports()) {
    cpu += report.cpu_seconds;
    result["workers"].push_back({{"forward", 1e3 * report.forward_seconds / steps},
                                 {"backward", 1e3 * report.backward_seconds / steps},
                                 {"input", 1e3 * report.input_seconds / steps},
                                 {"kept", report.most_kept}});
  }
  result["cpu"] = 1e3 * cpu / steps;
  result["optimizer"] = 1e3 * (training.pipeline().optimizer_seconds() - optimizer) / steps;
  return result;
}

at::Tensor make_activation(int64_t passages, int64_t context, int64_t width) {
  return at::rand({passages, context, width});
}

/// Fetches what goes from stage to stage, once it is there: what the messages are of the time in which inputs are
/// waited for.
Sample time_message(Worker& worker, const demo::TrainingOptions& options) {
  const auto& [model, schedule, shape] = options.pipeline;
  const auto there = worker.remote<make_activation>(1, options.batch / shape.micro_batches, model.context, model.width);
  there.to_here();
  return time_each([&] { there.to_here(); }, std::chrono::milliseconds(200));
}

/// The part of a step in which a worker has to wait if nothing but the schedule counts.
double bubble(const demo::PipelineShape& shape) {
  const double before = static_cast<double>(shape.workers - 1) / shape.chunks;
  return before / (shape.micro_batches + before);
}

json alone(const demo::Text& text, const demo::TrainingOptions& options) {
  demo::LocalTraining training(text, options);
  for (int64_t i = 0; i < warm_up; ++i) training.step(i);
  const double cpu = demo::cpu_seconds();
  json result;
  result["wall"] = time_steps(training);
  result["cpu"] = 1e3 * (demo::cpu_seconds() - cpu) / steps;
  return result;
}

}  // namespace

void pipeline_client(const Words& words) {
  Worker worker = join(words, 0, pipeline_workers);
  const demo::Text text(demo::essay());
  json results;
  for (const char* schedule : {"1f1b", "gpipe", "interleaved"}) {
    demo::ShowOptions options{.workers = pipeline_workers, .schedule = demo::schedule_named(schedule)};
    const auto training = demo::training_options(options, text);
    // An interleaved one has more blocks, so each is compared with its own model in one process.
    results[schedule]["pipeline"] = over_workers(worker, text, training);
    results[schedule]["one process"] = alone(text, training);
    results[schedule]["message"] = time_message(worker, training);
    results[schedule]["bubble"] = bubble(training.pipeline.shape);
  }
  std::cout << results << std::endl;
  worker.close();
}

}  // namespace farad::bench
