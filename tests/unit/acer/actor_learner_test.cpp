#include "acer/actor_learner.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "acer/environments/registry.h"
#include "acer/network.h"
#include "acer/rows.h"

namespace farad::acer {
namespace {

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
  /// Of a network without hidden layers: the second of two actions where the sum of what is observed, weighted so, is
  /// more than 0, and else the first.
  void choose_by(const std::vector<float>& weights) {
    const c10::NoGradGuard no_grad;
    const auto& policy = dynamic_cast<NetworkImpl&>(*network_).policy_head();
    policy.bias.zero_();
    for (size_t i = 0; i < weights.size(); ++i) {
      policy.weight[0][static_cast<int64_t>(i)] = -100 * weights[i];
      policy.weight[1][static_cast<int64_t>(i)] = 100 * weights[i];
    }
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

// --- What it says of what it did ---

/// An environment in which a worker's steps are made again, with the same random numbers: what it says of them is
/// compared with what they were.
class Twin {
 public:
  explicit Twin(const Settings& settings)
      : settings_(settings),
        environment_(make_environment(settings.environment)),
        random_(random_of_worker(settings, 0, 0, 0)),
        seen_(static_cast<size_t>(environment_->spec().observation_size)) {
    environment_->observe_in_units();
  }

  /// A window that the worker has just acted in.
  void follow(const Batch& batch) {
    ASSERT_EQ(batch.windows().size(), 1);
    const auto& window = batch.windows()[0];
    ASSERT_EQ(window.length, batch.steps());
    Outcome outcome;
    for (int64_t i = 0; i < window.length; ++i) {
      ASSERT_FALSE(outcome.over()) << "it goes on after the end of an episode";
      if (steps_.empty() || steps_.back().outcome.over()) environment_->reset(random_, seen_);
      Step step{seen_, batch.taken()[static_cast<size_t>(i)], {}, {}};
      outcome = environment_->step({step.taken}, random_, seen_);
      step.outcome = outcome;
      step.after = seen_;
      steps_.push_back(std::move(step));
    }
    ASSERT_TRUE(is(batch, window, steps_.size() - static_cast<size_t>(window.length)));
    ASSERT_EQ(batch.afters(), seen_);
    ASSERT_TRUE(outcome.over() || window.length == settings_.window) << "cut short";
  }

  /// Windows that it has replayed: that each is one of its own. Gives how many of them a time limit has cut.
  int find(const Batch& batch) const {
    int truncated = 0;
    for (size_t w = 0; w < batch.windows().size(); ++w) {
      const auto& window = batch.windows()[w];
      const auto length = static_cast<size_t>(window.length);
      size_t begin = 0;
      const auto is_here = [&] {
        const auto& last = steps_[begin + length - 1];
        const bool whole = window.length == settings_.window || last.outcome.over() || begin + length == steps_.size();
        return whole && is(batch, window, begin) &&
               std::ranges::equal(row_of(batch.afters(), static_cast<int64_t>(w), batch.observation_size()),
                                  last.after);
      };
      while (begin + length <= steps_.size() && !is_here()) ++begin;
      EXPECT_LE(begin + length, steps_.size()) << "it was never so";
      if (begin + length <= steps_.size()) truncated += steps_[begin + length - 1].outcome.truncated;
    }
    return truncated;
  }

  struct Episode {
    double sum_of_rewards = 0;
    int64_t length = 0;
    bool truncated = false;
  };
  /// Those that are over.
  std::vector<Episode> episodes() const {
    std::vector<Episode> all;
    Episode episode;
    for (const auto& step : steps_) {
      episode.sum_of_rewards += step.outcome.reward;
      ++episode.length;
      episode.truncated = step.outcome.truncated;
      if (step.outcome.over()) all.push_back(std::exchange(episode, {}));
    }
    return all;
  }

 private:
  struct Step {
    std::vector<float> observation;
    int64_t taken;
    Outcome outcome;
    std::vector<float> after;
  };

  /// Whether a window is of the steps from there on, of one episode, and ends as they do.
  bool is(const Batch& batch, const Window& window, size_t begin) const {
    for (int64_t i = 0; i < window.length; ++i) {
      const auto& step = steps_[begin + static_cast<size_t>(i)];
      const auto row = window.begin + i;
      if (!std::ranges::equal(row_of(batch.observations(), row, batch.observation_size()), step.observation) ||
          batch.taken()[static_cast<size_t>(row)] != step.taken ||
          batch.rewards()[static_cast<size_t>(row)] != step.outcome.reward * settings_.reward_scale)
        return false;
      if (i + 1 < window.length && step.outcome.over()) return false;
    }
    const auto& last = steps_[begin + static_cast<size_t>(window.length) - 1].outcome;
    return (window.ending == Ending::Terminated) == last.terminated;
  }

  const Settings settings_;
  const std::unique_ptr<Environment> environment_;
  Random random_;
  std::vector<float> seen_;
  std::vector<Step> steps_;
};

/// Acts and replays, and compares all of it with what it should be. Some episodes must reach the time limit.
void expect_true(const Settings& settings, Parameters& parameters, int windows, int64_t time_limit) {
  const auto tally = std::make_unique<Tally>();
  ActorLearner learner(settings, parameters, *tally, 0, 0);
  Twin twin(settings);
  int replayed_to_the_limit = 0;
  for (int i = 0; i < windows && !testing::Test::HasFailure(); ++i) {
    twin.follow(learner.act());
    replayed_to_the_limit += twin.find(learner.replay());
  }
  EXPECT_GT(replayed_to_the_limit, 0);
  const auto episodes = twin.episodes();
  ASSERT_EQ(tally->episodes, static_cast<int64_t>(episodes.size()));
  int truncated = 0;
  for (size_t i = 0; i < episodes.size(); ++i) {
    EXPECT_DOUBLE_EQ(tally->returns[i], episodes[i].sum_of_rewards);  // Not what is learned from.
    EXPECT_EQ(tally->lengths[i], episodes[i].length);
    if (!episodes[i].truncated) continue;
    EXPECT_EQ(episodes[i].length, time_limit);
    ++truncated;
  }
  EXPECT_GT(truncated, 0);
}

// Windows are of lengths that do not divide time limits, so that some are cut short by one.

TEST(ActorLearner, EndsAreToldFromTimeLimitsInGridWorld) {
  auto settings = small();
  settings.environment = "GridWorld";
  settings.window = 7;
  settings.reward_scale = 0.5;
  LocalParameters parameters(settings);
  expect_true(settings, parameters, 500, 100);
}

TEST(ActorLearner, EndsAreToldFromTimeLimitsInMountainCar) {
  auto settings = small();
  settings.environment = "MountainCar-v0";
  settings.window = 30;
  settings.reward_scale = 0.25;
  LocalParameters parameters(settings);
  expect_true(settings, parameters, 50, 200);
}

TEST(ActorLearner, TheLastStepOfAPoleThatStandsIsCutOffAndNotAnEnd) {
  auto settings = small();
  settings.hidden = {};
  settings.window = 30;
  LocalParameters parameters(settings);
  // Pushes the cart to where it leans and drifts, and so hardly ever falls.
  parameters.choose_by({1, 2, 20, 5});
  expect_true(settings, parameters, 100, 500);
}

TEST(ActorLearner, PullsOnceForEachUpdateRightBeforeIt) {
  class Counting final : public Parameters {
   public:
    explicit Counting(const Settings& settings) : values_(settings) {}
    void pull(Module& network, Module& average) override {
      calls += 'p';
      values_.pull(network, average);
    }
    shared::Update step(const Module& network, int64_t samples) override {
      calls += 's';
      return values_.step(network, samples);
    }
    std::string calls;

   private:
    LocalParameters values_;
  };
  const auto settings = small();
  Counting parameters(settings);
  const auto tally = std::make_unique<Tally>();
  ActorLearner learner(settings, parameters, *tally, 0, 0);
  std::string wanted;
  for (int i = 0; i < 200; ++i) {
    learner.update();
    wanted += "ps";
  }
  EXPECT_EQ(parameters.calls, wanted);
  EXPECT_EQ(tally->on_policy + tally->off_policy, 200);
  EXPECT_GT(tally->off_policy, 50);
}

TEST(ActorLearner, AnEpisodeThatCannotBeSavedIsNotJoinedWithTheNextOne) {
  for (const uint64_t seed : {1, 2, 3}) {
    auto settings = small();
    settings.environment = std::string("pipe:python3 ") + FARAD_ACER_WALK;
    settings.seed = seed;
    settings.window = 3;
    LocalParameters parameters(settings);
    const auto tally = std::make_unique<Tally>();
    std::stringstream saved;
    {
      ActorLearner learner(settings, parameters, *tally, 0, 0);
      do {  // Until it stops on the way.
      } while (learner.act().windows().at(0).ending == Ending::Terminated);
      learner.save(saved);
    }
    ActorLearner resumed(settings, parameters, *tally, 0, 0);
    resumed.load(saved);
    for (int i = 0; i < 5; ++i) resumed.act();
    for (int i = 0; i < 50; ++i) {
      const auto& batch = resumed.replay();
      const auto place = [&](int64_t row) {
        const auto seen = row_of(batch.observations(), row, batch.observation_size());
        return std::ranges::find(seen, 1.0f) - seen.begin();
      };
      for (const auto& window : batch.windows()) {
        for (int64_t row = window.begin; row + 1 < window.begin + window.length; ++row)
          ASSERT_EQ(place(row + 1), place(row) + (batch.taken()[static_cast<size_t>(row)] == 1 ? 1 : -1));
      }
    }
  }
}

}  // namespace
}  // namespace farad::acer
