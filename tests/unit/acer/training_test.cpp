#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "acer/actor_learner.h"
#include "acer/checkpoint.h"
#include "acer/environments/registry.h"
#include "acer/faulty_parameters.h"
#include "acer/network.h"
#include "acer/replay.h"

namespace farad::acer {
namespace {

// --- Replay ---

/// Steps with their number as observation; episodes of `length` steps, of which every other one is cut off.
Replay numbered(int64_t capacity, int64_t steps, int64_t length) {
  Replay replay(capacity, 1, 2);
  for (int64_t i = 0; i < steps; ++i) {
    const bool over = (i + 1) % length == 0, terminated = over && (i / length) % 2 == 0;
    const float seen = static_cast<float>(i), after = seen + 0.5f;
    replay.add({&seen, 1}, {i % 2}, std::vector<float>{0.25f, 0.75f},
               {.reward = static_cast<double>(i), .terminated = terminated, .truncated = over && !terminated},
               {&after, 1});
  }
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

// --- One worker ---

/// Plain SGD in this process.
class LocalParameters final : public Parameters {
 public:
  explicit LocalParameters(const Settings& settings)
      : network_(make_network(settings.shape(make_environment(settings.environment)->spec()), Random(5))) {}

  void pull(Module& network, Module& average) override {
    const c10::NoGradGuard no_grad;
    const auto values = network_->parameters();
    for (auto* to : {&network, &average}) {
      const auto there = to->parameters();
      for (size_t i = 0; i < values.size(); ++i) there[i].copy_(values[i]);
    }
  }
  shared::Update step(const Module& network, int64_t) override {
    const c10::NoGradGuard no_grad;
    const auto values = network_->parameters(), by = network.parameters();
    for (size_t i = 0; i < values.size(); ++i) values[i].sub_(by[i].grad(), 0.01);
    ++version_;
    return {0, version_, version_ - 1, version_};
  }
  void become(const LocalParameters& other) {
    const c10::NoGradGuard no_grad;
    const auto values = network_->parameters(), there = other.network_->parameters();
    for (size_t i = 0; i < values.size(); ++i) values[i].copy_(there[i]);
    version_ = other.version_;
  }
  at::Tensor values() const {
    std::vector<at::Tensor> parts;
    for (const auto& parameter : network_->parameters()) parts.push_back(parameter.detach().flatten());
    return at::cat(parts);
  }

 private:
  std::shared_ptr<Module> network_;
  uint64_t version_ = 0;
};

Settings small() {
  Settings settings;
  settings.hidden = {16};
  settings.replay_start = 100;
  settings.replay_capacity = 400;
  settings.workers = 1;
  return settings;
}

TEST(ActorLearner, IsOnPolicyWhereItSaysSoAndReplaysAsOftenAsItShould) {
  const auto settings = small();
  LocalParameters parameters(settings);
  const auto tally = std::make_unique<Tally>();
  auto no_replay = settings;
  no_replay.replay_ratio = 0;
  ActorLearner learner(no_replay, parameters, *tally, 0, 0);
  for (int i = 0; i < 50; ++i) learner.turn();
  const auto sums = tally->measures();
  const auto of = [&](Measure measure) { return sums[static_cast<size_t>(measure)]; };
  EXPECT_NEAR(of(Measure::Ratio) / of(Measure::Steps), 1, 1e-6);
  EXPECT_LT(tally->largest_ratio, 1 + 1e-5);
  EXPECT_EQ(of(Measure::CorrectionLoss), 0);

  const auto another = std::make_unique<Tally>();
  ActorLearner replaying(settings, parameters, *another, 1, 0);
  while (another->steps < settings.replay_start) replaying.turn();
  const int64_t before = another->on_policy;
  for (int i = 0; i < 500; ++i) replaying.turn();
  const double ratio = static_cast<double>(another->off_policy) / static_cast<double>(another->on_policy - before);
  EXPECT_NEAR(ratio, 4, 0.4);
}

TEST(ActorLearner, GoesOnFromWhatItSavedToTheBit) {
  const auto settings = small();
  const auto tally = std::make_unique<Tally>();
  LocalParameters parameters(settings);
  ActorLearner learner(settings, parameters, *tally, 0, 0);
  for (int i = 0; i < 40; ++i) learner.turn();
  std::stringstream saved;
  learner.save(saved);
  LocalParameters copy(settings);
  copy.become(parameters);
  ActorLearner resumed(settings, copy, *tally, 0, 0);
  resumed.load(saved);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(learner.turn(), resumed.turn());
  }
  EXPECT_TRUE(parameters.values().equal(copy.values()));
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
  Settings settings = small();
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
