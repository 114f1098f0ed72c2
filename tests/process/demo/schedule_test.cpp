// The orders of pipelines, by themselves: which actions there are, how many are kept, and that no worker waits for
// ever.

#include "demo/schedule.h"

#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace farad::demo {
namespace {

using enum PipelineSchedule;
using Kind = Action::Kind;

std::string written(const std::vector<Action>& order) {
  std::string text;
  for (const auto& action : order) {
    text += (text.empty() ? "" : " ") + std::string(action.kind == Kind::Forward ? "F" : "B") +
            std::to_string(action.micro_batch) + (action.chunk > 0 ? std::string(action.chunk, '\'') : "");
  }
  return text;
}

/// Every shape that suits, up to some size.
std::vector<std::pair<PipelineSchedule, PipelineShape>> many_shapes() {
  std::vector<std::pair<PipelineSchedule, PipelineShape>> all;
  for (int workers = 1; workers <= 5; workers++) {
    for (int micro_batches = 1; micro_batches <= 12; micro_batches++) {
      all.push_back({OneForwardOneBackward, {workers, 1, micro_batches}});
      all.push_back({GPipe, {workers, 1, micro_batches}});
      for (int chunks = 1; chunks <= 3; chunks++) {
        if (micro_batches % workers == 0) all.push_back({Interleaved, {workers, chunks, micro_batches}});
      }
    }
  }
  return all;
}

std::string named(PipelineSchedule schedule, const PipelineShape& shape) {
  return "schedule " + std::to_string(static_cast<int>(schedule)) + ", " + std::to_string(shape.workers) +
         " workers, " + std::to_string(shape.chunks) + " chunks, " + std::to_string(shape.micro_batches) +
         " micro-batches";
}

TEST(PipelineScheduleTest, OneForwardOneBackwardIsWhatThePapersDraw) {
  const PipelineShape shape{3, 1, 4};
  EXPECT_EQ(written(order_of(OneForwardOneBackward, shape, 0)), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(written(order_of(OneForwardOneBackward, shape, 1)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(written(order_of(OneForwardOneBackward, shape, 2)), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(PipelineScheduleTest, GPipeDoesAllForwardsFirst) {
  for (int worker = 0; worker < 3; worker++)
    EXPECT_EQ(written(order_of(GPipe, {3, 1, 3}, worker)), "F0 F1 F2 B0 B1 B2");
}

TEST(PipelineScheduleTest, InterleavedGoesRoundTheWorkersOncePerChunk) {
  EXPECT_EQ(written(order_of(Interleaved, {2, 2, 4}, 0)), "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3");
  EXPECT_EQ(written(order_of(Interleaved, {2, 2, 4}, 1)), "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3");
}

TEST(PipelineScheduleTest, EveryActionComesOnceAndBackwardAfterForward) {
  for (const auto& [schedule, shape] : many_shapes()) {
    for (int worker = 0; worker < shape.workers; worker++) {
      const auto order = order_of(schedule, shape, worker);
      std::set<std::tuple<int, int>> forwards, backwards;
      for (const auto& [kind, micro_batch, chunk] : order) {
        if (kind == Kind::Backward) {
          ASSERT_TRUE(forwards.contains({micro_batch, chunk})) << named(schedule, shape);
        }
        (kind == Kind::Forward ? forwards : backwards).emplace(micro_batch, chunk);
      }
      const auto all = static_cast<size_t>(shape.micro_batches * shape.chunks);
      ASSERT_EQ(order.size(), 2 * all) << named(schedule, shape);
      ASSERT_EQ(forwards.size(), all) << named(schedule, shape);
      ASSERT_EQ(backwards.size(), all) << named(schedule, shape);
    }
  }
}

TEST(PipelineScheduleTest, AWorkerKeepsNoMoreThanTheScheduleIsFor) {
  for (const auto& [schedule, shape] : many_shapes()) {
    for (int worker = 0; worker < shape.workers; worker++) {
      const int kept = most_kept(order_of(schedule, shape, worker)), all = shape.micro_batches * shape.chunks;
      const int behind = shape.workers - worker - 1;
      const int bound = schedule == GPipe                   ? all
                        : schedule == OneForwardOneBackward ? behind + 1
                                                            : (shape.chunks - 1) * shape.workers + 2 * behind + 1;
      EXPECT_EQ(kept, std::min(bound, all)) << named(schedule, shape) << ", worker " << worker;
    }
  }
}

/// Lets every worker go on as long as what it needs is there; gives what is left of their orders.
size_t left_undone(PipelineSchedule schedule, const PipelineShape& shape) {
  std::vector<std::vector<Action>> orders;
  for (int worker = 0; worker < shape.workers; worker++) orders.push_back(order_of(schedule, shape, worker));
  std::vector<size_t> next(orders.size());
  std::set<std::tuple<Kind, int, int>> done;  // by stage
  const auto possible = [&](const Action& action, int stage) {
    if (action.kind == Kind::Forward)
      return stage == 0 || done.contains({Kind::Forward, action.micro_batch, stage - 1});
    return stage == shape.stages() - 1 || done.contains({Kind::Backward, action.micro_batch, stage + 1});
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t worker = 0; worker < orders.size(); worker++) {
      while (next[worker] < orders[worker].size()) {
        const auto& action = orders[worker][next[worker]];
        const int stage = action.chunk * shape.workers + static_cast<int>(worker);
        if (!possible(action, stage)) break;
        done.emplace(action.kind, action.micro_batch, stage);
        next[worker]++;
        moved = true;
      }
    }
  }
  size_t left = 0;
  for (size_t worker = 0; worker < orders.size(); worker++) left += orders[worker].size() - next[worker];
  return left;
}

TEST(PipelineScheduleTest, WorkersThatKeepToTheirOrdersNeverWaitForEver) {
  for (const auto& [schedule, shape] : many_shapes())
    EXPECT_EQ(left_undone(schedule, shape), 0) << named(schedule, shape);
}

TEST(PipelineScheduleTest, WhatDoesNotFitIsRefusedByName) {
  const auto refusal = [](PipelineSchedule schedule, PipelineShape shape, int worker) -> std::string {
    try {
      order_of(schedule, shape, worker);
    } catch (const Error& error) {
      return error.what_without_backtrace();
    }
    return "none";
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal(Interleaved, {2, 2, 5}, 0), HasSubstr("5 micro-batches are no multiple of 2 workers"));
  EXPECT_THAT(refusal(GPipe, {2, 2, 4}, 0), HasSubstr("2 stages per worker need the interleaved schedule"));
  EXPECT_THAT(refusal(GPipe, {2, 1, 4}, 2), HasSubstr("no worker 2 among 2"));
  EXPECT_THAT(refusal(GPipe, {2, 1, 0}, 0), HasSubstr("at least one"));
  EXPECT_THROW(schedule_named("zero-bubble"), Error);
  EXPECT_EQ(schedule_named("1f1b"), OneForwardOneBackward);
}

}  // namespace
}  // namespace farad::demo
