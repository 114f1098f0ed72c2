// A model in stages learns as the same model in one process does.

#include <ATen/ops/allclose.h>
#include <farad/spawn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "demo/schedule.h"
#include "demo/training.h"

namespace farad::demo {
namespace {

struct Case {
  std::string name;
  PipelineSchedule schedule;
  PipelineShape shape;
};

TrainingOptions small(const Case& example, const Text& text) {
  TrainingOptions options;
  auto& model = options.pipeline.model;
  model.vocabulary = text.vocabulary();
  model.context = 12;
  model.width = 16;
  model.heads = 2;
  model.blocks = 6;
  options.pipeline.schedule = example.schedule;
  options.pipeline.shape = example.shape;
  options.batch = 12;
  options.steps = 6;
  return options;
}

void expect_close(const std::vector<at::Tensor>& these, const std::vector<at::Tensor>& those) {
  ASSERT_EQ(these.size(), those.size());
  for (size_t i = 0; i < these.size(); i++) {
    EXPECT_TRUE(at::allclose(these[i], those[i].detach(), 1e-4, 1e-5))
        << "parameter " << i << " differs by " << (these[i] - those[i]).abs().max().item<double>();
  }
}

class PipelineTest : public testing::TestWithParam<Case> {};

TEST_P(PipelineTest, LossesAndParametersAreThoseOfOneProcess) {
  const Text text(essay());
  const auto options = small(GetParam(), text);
  LocalTraining here(text, options);
  spawn_threads(options.pipeline.shape.workers, [&](Worker& worker) {
    if (worker.rank() != 0) return;
    PipelineTraining there(worker, text, options);
    for (int64_t step = 0; step < options.steps; step++) {
      const double one = here.step(step), other = there.step(step);
      EXPECT_NEAR(one, other, 1e-5) << "step " << step;
    }
    expect_close(there.parameters(), here.parameters());
  });
}

TEST_P(PipelineTest, NoWorkerKeepsMoreThanItsScheduleSays) {
  const Text text(essay());
  const auto options = small(GetParam(), text);
  const auto& [model, schedule, shape] = options.pipeline;
  spawn_threads(shape.workers, [&](Worker& worker) {
    if (worker.rank() != 0) return;
    PipelineTraining training(worker, text, options);
    for (int64_t step = 0; step < 3; step++) training.step(step);
    const auto reports = training.pipeline().reports();
    for (int place = 0; place < shape.workers; place++) {
      EXPECT_LE(reports[static_cast<size_t>(place)].most_kept, most_kept(order_of(schedule, shape, place)))
          << "worker " << place;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Each, PipelineTest,
    testing::Values(Case{"OneForwardOneBackward", PipelineSchedule::OneForwardOneBackward, {3, 1, 6}},
                    Case{"GPipe", PipelineSchedule::GPipe, {3, 1, 4}},
                    Case{"Interleaved", PipelineSchedule::Interleaved, {3, 2, 6}},
                    Case{"FewMicroBatches", PipelineSchedule::OneForwardOneBackward, {3, 1, 2}},
                    Case{"OneWorker", PipelineSchedule::OneForwardOneBackward, {1, 1, 3}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace farad::demo
