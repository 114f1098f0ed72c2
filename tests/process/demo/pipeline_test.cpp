// A model in stages learns as the same model in one process does.

#include <farad/error.h>
#include <farad/spawn.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "process/demo/small_training.h"
#include "suites/rpc_suite.h"

namespace farad::demo {
namespace {

struct Case {
  std::string name;
  PipelineSchedule schedule;
  PipelineShape shape;
};

/// Where gradients of the last stage wait. Its worker lives in this process.
const Promise<void>* gate;
void hold_gradient(at::Tensor& parameter) {
  parameter.register_hook([opened = gate->future()](const at::Tensor&) { opened.wait(); });
}

class PipelineTest : public testing::TestWithParam<Case> {};

TEST_P(PipelineTest, LossesAndParametersAreThoseOfOneProcess) {
  const Text text(essay());
  const auto options = small_training(text, GetParam().schedule, GetParam().shape);
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
  const auto options = small_training(text, GetParam().schedule, GetParam().shape);
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

TEST(PipelineOverlap, FirstWorkerEndsOneForwardForEachWorkerWhileTheLastIsHeld) {
  const Text text(essay());
  const auto options = small_training(text, PipelineSchedule::OneForwardOneBackward, {3, 1, 6});
  spawn_threads(3, [&](Worker& worker) {
    if (worker.rank() != 0) return;
    PipelineTraining training(worker, text, options);
    const Promise<void> open;
    gate = &open;
    training.pipeline().parameters().back().rpc_sync<hold_gradient>();
    std::thread step([&] { EXPECT_NO_THROW(training.step(0)); });
    // It keeps those whose backward has not ended, and none can end.
    EXPECT_TRUE(test::eventually([&] { return training.pipeline().reports().front().most_kept == 3; }));
    open.set_value();
    step.join();
  });
}

TEST(PipelineFailures, StepOfAWorkerThatIsClosedFails) {
  const Text text(essay());
  const auto options = small_training(text, PipelineSchedule::OneForwardOneBackward, {1, 1, 3});
  spawn_threads(1, [&](Worker& worker) {
    PipelineTraining training(worker, text, options);
    training.step(0);
    worker.close();
    EXPECT_THROW(training.step(1), Error);
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
