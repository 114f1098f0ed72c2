#include <farad/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "acer/environments/registry.h"

namespace farad::acer {
namespace {

using testing::HasSubstr;

constexpr char lander_name[] = "LunarLander-v2";
using Sight = std::vector<float>;

class LunarLanderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto names = environment_names();
    if (std::find(names.begin(), names.end(), lander_name) == names.end())
      GTEST_SKIP() << "built without Box2D: LunarLander was not tested; libbox2d-dev has it";
  }
};

enum Engine : int64_t { none, left, main_engine, right };

/// How it would be flown by hand: leaning against the way it drifts and away from the pad's far side, and with the main
/// engine whenever it falls faster than its height above the pad allows.
int64_t by_hand(const Sight& seen) {
  const bool touches = seen[6] != 0 || seen[7] != 0;
  const float lean = std::clamp(0.6f * seen[0] + 0.9f * seen[2], -0.35f, 0.35f);
  const float turn = touches ? 0 : 0.6f * (lean - seen[4]) - seen[5];
  const float height = std::max(seen[1] - 0.5f * std::abs(seen[0]), 0.0f);
  if (seen[3] < -0.08f - 0.7f * height && std::abs(turn) < 0.3f) return main_engine;
  if (std::abs(turn) < 0.05f) return none;
  return turn < 0 ? right : left;
}

/// What an observed state is worth: rewards are its differences.
double worth(const Sight& seen) {
  const auto at = [&](size_t i) { return static_cast<double>(seen[i]); };
  return -100 * std::hypot(at(0), at(1)) - 100 * std::hypot(at(2), at(3)) - 100 * std::abs(at(4)) + 10 * at(6) +
         10 * at(7);
}

struct Episode {
  double sum = 0;     ///< of the rewards but the last
  double fuel = 0;    ///< likewise
  double gained = 0;  ///< what the state is worth more before the last step than at the beginning
  Outcome last;
  int steps = 0;
  Sight seen = Sight(8);
};

template <class Pilot>
Episode fly(uint64_t seed, Pilot pilot) {
  const auto lander = make_environment(lander_name);
  Random random(seed);
  Episode episode;
  lander->reset(random, episode.seen);
  const double first = worth(episode.seen);
  while (true) {
    episode.gained = worth(episode.seen) - first;
    const int64_t engine = pilot(episode.seen);
    episode.last = lander->step({engine}, random, episode.seen);
    ++episode.steps;
    if (episode.last.over()) return episode;
    episode.sum += episode.last.reward;
    episode.fuel += engine == main_engine ? 0.3 : engine == none ? 0 : 0.03;
  }
}

TEST_F(LunarLanderTest, RewardsAddUpToWhatWasGainedLessTheFuel) {
  Random choices(1);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto episode = fly(seed, [&](const Sight&) { return choices.below(4); });
    EXPECT_NEAR(episode.sum, episode.gained - episode.fuel, 1e-3) << "seed " << seed;
  }
}

TEST_F(LunarLanderTest, ALandingPaysAndBringsMoreThanCountsAsSolved) {
  int landed = 0;
  double sum = 0;
  constexpr int episodes = 20;
  for (uint64_t seed = 1; seed <= episodes; ++seed) {
    const auto episode = fly(seed, by_hand);
    sum += episode.sum + episode.last.reward;
    if (episode.last.reward != 100) continue;
    ++landed;
    EXPECT_TRUE(episode.last.terminated);
    EXPECT_EQ(episode.seen[6] + episode.seen[7], 2) << "seed " << seed;
    EXPECT_NEAR(episode.seen[3], 0, 1e-2);
  }
  EXPECT_GE(landed, episodes * 3 / 4);
  EXPECT_GE(sum / episodes, 200);
}

TEST_F(LunarLanderTest, ACrashCostsAHundredAndSoDoesToFlyAway) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const auto fallen = fly(seed, [](const Sight&) { return none; });
    EXPECT_EQ(fallen.last.reward, -100) << "seed " << seed;
    EXPECT_TRUE(fallen.last.terminated);
    EXPECT_LT(fallen.steps, 200);
  }
  const auto away = fly(1, [](const Sight& seen) { return seen[4] > -0.5f ? right : main_engine; });
  EXPECT_EQ(away.last.reward, -100);
  EXPECT_TRUE(away.last.terminated);
  EXPECT_GE(std::abs(away.seen[0]), 1);
}

TEST_F(LunarLanderTest, RandomPlayIsWorthWhatIsKnown) {
  Random choices(2);
  double sum = 0, steps = 0;
  constexpr int episodes = 300;
  for (uint64_t seed = 1; seed <= episodes; ++seed) {
    const auto episode = fly(seed, [&](const Sight&) { return choices.below(4); });
    sum += episode.sum + episode.last.reward;
    steps += episode.steps;
  }
  EXPECT_NEAR(sum / episodes, -190, 30);
  EXPECT_NEAR(steps / episodes, 92, 12);
}

TEST_F(LunarLanderTest, ItHoversUntilItIsCutOffAfterAThousandSteps) {
  // Held about a third of the way up, upright.
  const auto hover = [](const Sight& seen) -> int64_t {
    const float turn = 0.5f * (std::clamp(0.5f * seen[0] + seen[2], -0.2f, 0.2f) - seen[4]) - seen[5];
    if (0.5f * (0.7f - seen[1] - seen[3]) > std::max(std::abs(turn), 0.05f)) return main_engine;
    return turn < -0.05f ? right : turn > 0.05f ? left : none;
  };
  const auto episode = fly(1, hover);
  EXPECT_EQ(episode.steps, 1000);
  EXPECT_TRUE(episode.last.truncated);
  EXPECT_FALSE(episode.last.terminated);
}

TEST_F(LunarLanderTest, ASeedDecidesAnEpisode) {
  const auto flown = [](uint64_t seed) { return fly(seed, by_hand).seen; };
  EXPECT_EQ(flown(3), flown(3));
  EXPECT_NE(flown(3), flown(4));
}

/// At any time, also while legs touch the ground, where Box2D remembers contacts.
TEST_F(LunarLanderTest, ASavedEpisodeGoesOnToTheBit) {
  const auto one = make_environment(lander_name), other = make_environment(lander_name);
  Random random(5);
  Sight seen(8), there(8);
  one->reset(random, seen);
  bool over = false;
  int saved_on_the_ground = 0;
  while (!over) {
    Random same(random.state());
    other->load(one->save(), there);
    ASSERT_EQ(seen, there);
    saved_on_the_ground += seen[6] != 0;
    const int64_t engine = by_hand(seen);
    const auto here = one->step({engine}, random, seen), elsewhere = other->step({engine}, same, there);
    ASSERT_EQ(seen, there);
    ASSERT_EQ(here.reward, elsewhere.reward);
    over = here.over();
  }
  EXPECT_GT(saved_on_the_ground, 10);
}

TEST(LunarLander, WithoutBox2dItSaysWhatToInstall) {
  const auto names = environment_names();
  if (std::find(names.begin(), names.end(), lander_name) != names.end())
    GTEST_SKIP() << "built with Box2D: nothing is missing";
  try {
    make_environment(lander_name);
    FAIL() << "there is one";
  } catch (const Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("libbox2d-dev"));
  }
}

}  // namespace
}  // namespace farad::acer
