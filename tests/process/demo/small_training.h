#pragma once

#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <vector>

#include "demo/schedule.h"
#include "demo/training.h"

namespace farad::demo {

/// A model of which a step takes some milliseconds.
inline TrainingOptions small_training(const Text& text, PipelineSchedule schedule, const PipelineShape& shape) {
  TrainingOptions options;
  auto& model = options.pipeline.model;
  model.vocabulary = text.vocabulary();
  model.context = 12;
  model.width = 16;
  model.heads = 2;
  model.blocks = 6;
  options.pipeline.schedule = schedule;
  options.pipeline.shape = shape;
  options.batch = 12;
  options.steps = 6;
  return options;
}

inline void expect_close(const std::vector<at::Tensor>& these, const std::vector<at::Tensor>& those) {
  ASSERT_EQ(these.size(), those.size());
  for (size_t i = 0; i < these.size(); i++) {
    EXPECT_TRUE(at::allclose(these[i], those[i].detach(), 1e-4, 1e-5))
        << "parameter " << i << " differs by " << (these[i] - those[i]).abs().max().item<double>();
  }
}

}  // namespace farad::demo
