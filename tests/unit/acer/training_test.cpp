#include <ATen/ops/full_like.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "acer/faulty_parameters.h"
#include "acer/network.h"
#include "acer/replay.h"
#include "acer/worker_process.h"

namespace farad::acer {
namespace {

// --- Replay ---

/// Adds steps with their number as observation, in episodes of `length` steps, of which every other one is cut off.
void add_numbered(Replay& replay, int64_t begin, int64_t end, int64_t length) {
  for (int64_t i = begin; i < end; ++i) {
    const bool over = (i + 1) % length == 0, terminated = over && (i / length) % 2 == 0;
    const float seen = static_cast<float>(i), after = seen + 0.5f;
    replay.add({&seen, 1}, {i % 2}, std::vector<float>{0.25f, 0.75f},
               {.reward = static_cast<double>(i), .terminated = terminated, .truncated = over && !terminated},
               {&after, 1});
  }
}

Replay numbered(int64_t capacity, int64_t steps, int64_t length) {
  Replay replay(capacity, 1, 2);
  add_numbered(replay, 0, steps, length);
  return replay;
}

TEST(Replay, WindowsAreStepsThatFollowEachOtherInOneEpisode) {
  const auto replay = numbered(100, 250, 7);
  EXPECT_EQ(replay.size(), 100);
  Random random(1);
  Batch batch(1, 2);
  for (int i = 0; i < 2000; ++i) {
    batch.clear();
    replay.draw(5, random, batch);
    const auto& window = batch.windows().at(0);
    ASSERT_EQ(window.length, batch.steps());
    ASSERT_LE(window.length, 5);
    const auto first = static_cast<int64_t>(batch.observations()[0]);
    for (int64_t j = 0; j < window.length; ++j) {
      const auto at = static_cast<size_t>(j);
      ASSERT_EQ(static_cast<int64_t>(batch.observations()[at]), first + j);
      ASSERT_EQ(batch.rewards()[at], static_cast<double>(first + j));
      ASSERT_EQ(batch.behaviour(j)[1], 0.75);
    }
    const int64_t last = first + window.length - 1;
    ASSERT_EQ(first / 7, last / 7) << "a window over two episodes";
    ASSERT_EQ(batch.afters()[0], static_cast<float>(last) + 0.5f);
    ASSERT_EQ(window.ending == Ending::Terminated, (last + 1) % 7 == 0 && (last / 7) % 2 == 0);
    ASSERT_TRUE(window.length == 5 || (last + 1) % 7 == 0 || last == 249) << "cut short";
  }
}

/// The windows that end with the step 9, after which an episode was cut off, and in which all others are in one piece.
std::vector<Window> windows_to_step_9(int64_t length) {
  auto replay = numbered(100, 10, length);
  replay.cut_off();
  add_numbered(replay, 10, 20, 100);
  Random random(3);
  Batch batch(1, 2);
  std::vector<Window> found;
  for (int i = 0; i < 500; ++i) {
    batch.clear();
    replay.draw(5, random, batch);
    const auto last = static_cast<int64_t>(batch.observations().back());
    EXPECT_FALSE(batch.observations().front() < 10 && last >= 10) << "a window over two episodes";
    if (last != 9) continue;
    EXPECT_EQ(batch.afters()[0], 9.5f);
    found.push_back(batch.windows().at(0));
  }
  EXPECT_GT(found.size(), 50);
  return found;
}

TEST(Replay, WhatIsCutOffEndsThereAndKeepsItsValue) {
  for (const auto& window : windows_to_step_9(100)) EXPECT_EQ(window.ending, Ending::Cut);
  for (const auto& window : windows_to_step_9(10)) EXPECT_EQ(window.ending, Ending::Terminated);  // It was over before.
}

TEST(Replay, BeginsAtEveryStepEquallyOftenTheLastOfEpisodesIncluded) {
  constexpr int64_t steps = 50, draws = 50'000;
  const auto replay = numbered(steps, 130, 9);
  Random random(2);
  Batch batch(1, 2);
  std::vector<double> counts(steps, 0.0);
  for (int64_t i = 0; i < draws; ++i) {
    batch.clear();
    const int64_t age = replay.draw(4, random, batch);
    const auto first = static_cast<int64_t>(batch.observations()[0]);
    EXPECT_EQ(age, 130 - first);
    counts.at(static_cast<size_t>(first - 80)) += 1;
  }
  double chi_squared = 0;
  constexpr double expected = static_cast<double>(draws) / steps;
  for (const double count : counts) chi_squared += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_squared, 86);  // 49 degrees of freedom: exceeded with a probability of 1e-3
}

// --- The end ---

TEST(AllReduced, AllEndAtTheVersionAfterTheLastOneHasMadeItsShare) {
  Settings settings;
  settings.policy = shared::Policy::AllReduced;
  settings.workers = 2;
  settings.steps = 100;
  const auto board = std::make_unique<Board>();
  auto &one = board->tallies[0], &other = board->tallies[1];
  one.steps = 60;
  other.steps = 40;
  EXPECT_FALSE(is_done(settings, *board, one, 7));
  EXPECT_FALSE(is_done(settings, *board, other, 7));
  other.steps = 55;
  EXPECT_FALSE(is_done(settings, *board, other, 8));
  EXPECT_FALSE(is_done(settings, *board, one, 8));
  EXPECT_TRUE(is_done(settings, *board, one, 9));
  EXPECT_TRUE(is_done(settings, *board, other, 9));
}

TEST(AllReduced, TheEndComesIfTheLastOneToFinishIsKilledBeforeItSaysWhichItIs) {
  Settings settings;
  settings.policy = shared::Policy::AllReduced;
  settings.workers = 2;
  settings.steps = 100;
  const auto board = std::make_unique<Board>();
  for (auto* tally : {&board->tallies[0], &board->tallies[1]}) {
    tally->steps = 50;
    tally->finished = true;
  }
  EXPECT_FALSE(is_done(settings, *board, board->tallies[0], 8));
  EXPECT_TRUE(is_done(settings, *board, board->tallies[0], 9));
  EXPECT_TRUE(is_done(settings, *board, board->tallies[1], 9));
}

// --- Defects to train with ---

/// What each of three updates takes to the parameters, whose gradients are all 1, then 2, then 3, and what it is given
/// for the average, which is 1, then 2, then 3.
struct Seen {
  std::vector<double> gradients, averages;
};
Seen seen_with(Fault fault, double largest_gradient) {
  class Counting final : public Parameters {
   public:
    void pull(Module&, Module& average) override {
      const c10::NoGradGuard no_grad;
      ++pulls_;
      for (const auto& parameter : average.parameters()) parameter.fill_(pulls_);
    }
    shared::Update step(const Module& network, int64_t) override {
      gradients.push_back(network.parameters().front().grad().max().item<double>());
      return {};
    }
    std::vector<double> gradients;

   private:
    int pulls_ = 0;
  };
  Settings settings;
  settings.inject = fault;
  settings.rules.largest_gradient = largest_gradient;
  Counting sound;
  FaultyParameters parameters(sound, settings);
  Network network(NetworkShape{1, {4}, 1}, Random(1)), average(NetworkShape{1, {4}, 1}, Random(1));
  Seen seen;
  for (int i = 1; i <= 3; ++i) {
    parameters.pull(*network, *average);
    seen.averages.push_back(average->parameters().front().max().item<double>());
    for (const auto& parameter : network->parameters()) parameter.mutable_grad() = at::full_like(parameter, i);
    parameters.step(*network, 1);
  }
  seen.gradients = sound.gradients;
  return seen;
}

TEST(FaultyParameters, AreAsTheDefectsSay) {
  const std::vector<double> sound{1, 2, 3};
  EXPECT_EQ(seen_with(Fault::None, 0).gradients, sound);
  EXPECT_EQ(seen_with(Fault::None, 0).averages, sound);
  EXPECT_EQ(seen_with(Fault::Accumulate, 0).gradients, (std::vector<double>{1, 3, 6}));
  EXPECT_EQ(seen_with(Fault::Accumulate, 0).averages, sound);
  EXPECT_EQ(seen_with(Fault::FreezeFirst, 0).gradients, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(seen_with(Fault::FreezeFirst, 0).averages, sound);
  EXPECT_EQ(seen_with(Fault::StaleAverage, 0).gradients, sound);
  EXPECT_EQ(seen_with(Fault::StaleAverage, 0).averages, (std::vector<double>{1, 1, 1}));
}

TEST(FaultyParameters, SumsAreCutToTheSameLengthAsGradients) {
  const auto cut = seen_with(Fault::Accumulate, 1).gradients;
  EXPECT_NEAR(cut[0], cut[1], 1e-6);
  EXPECT_NEAR(cut[1], cut[2], 1e-6);
}

}  // namespace
}  // namespace farad::acer
