// The rules of the classic environments: where they begin, end, wrap, clamp, and what they pay.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "acer/environments/classic.h"

namespace farad::acer {
namespace {

constexpr double pi = std::numbers::pi;

struct Step {
  Outcome outcome;
  std::vector<double> state;
};

/// One step from a state on, at the beginning of an episode.
template <class World>
Step step_from(std::vector<double> state, int64_t action) {
  World world;
  Random random(1);
  std::vector<float> seen(static_cast<size_t>(world.spec().observation_size));
  state.push_back(0);
  world.load(state, seen);
  const auto outcome = world.step({action}, random, seen);
  auto after = world.save();
  after.pop_back();
  return {outcome, after};
}

/// The least and the most of what episodes begin with, number by number.
template <class World>
std::pair<std::vector<double>, std::vector<double>> beginnings() {
  World world;
  Random random(2);
  std::vector<float> seen(static_cast<size_t>(world.spec().observation_size));
  std::vector<double> least, most;
  for (int i = 0; i < 1000; ++i) {
    world.reset(random, seen);
    auto state = world.save();
    state.pop_back();
    if (least.empty()) least = most = state;
    for (size_t j = 0; j < state.size(); ++j) {
      least[j] = std::min(least[j], state[j]);
      most[j] = std::max(most[j], state[j]);
    }
  }
  return {least, most};
}

template <class World>
void expect_beginnings(const std::vector<double>& low, const std::vector<double>& high) {
  const auto [least, most] = beginnings<World>();
  for (size_t i = 0; i < low.size(); ++i) {
    const double margin = 0.01 * (high[i] - low[i]);
    EXPECT_GE(least[i], low[i]);
    EXPECT_LE(least[i], low[i] + margin);
    EXPECT_LE(most[i], high[i]);
    EXPECT_GE(most[i], high[i] - margin);
  }
}

TEST(Rules, EpisodesBeginSomewhereNearTheMiddle) {
  const std::vector<double> pole(4, 0.05), links(4, 0.1);
  expect_beginnings<CartPole>({-0.05, -0.05, -0.05, -0.05}, pole);
  expect_beginnings<Acrobot>({-0.1, -0.1, -0.1, -0.1}, links);
  expect_beginnings<MountainCar>({-0.6, 0}, {-0.4, 0});
}

TEST(Rules, APoleFallsAtTwelveDegreesAndACartLeavesAt2Point4) {
  const auto over = [](std::vector<double> state) {
    const auto outcome = step_from<CartPole>(std::move(state), 1).outcome;
    EXPECT_EQ(outcome.reward, 1);  // The last step too.
    EXPECT_FALSE(outcome.truncated);
    return outcome.terminated;
  };
  constexpr double degree = pi / 180;
  for (const double side : {-1.0, 1.0}) {
    EXPECT_TRUE(over({side * 2.39, side * 0.51, 0, 0}));
    EXPECT_FALSE(over({side * 2.39, side * 0.49, 0, 0}));
    EXPECT_TRUE(over({0, 0, side * 12.01 * degree, 0}));
    EXPECT_FALSE(over({0, 0, side * 11.99 * degree, 0}));
  }
}

TEST(Rules, LinksAreUpWhenTheirEndIsAboveTheLine) {
  Random random(3);
  int ended = 0, close = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto [outcome, x] = step_from<Acrobot>(
        {random.uniform(-pi, pi), random.uniform(-pi, pi), random.uniform(-3, 3), random.uniform(-3, 3)},
        random.below(3));
    const double height = -std::cos(x[0]) - std::cos(x[0] + x[1]);
    ASSERT_EQ(outcome.terminated, height > 1);
    ASSERT_EQ(outcome.reward, height > 1 ? 0 : -1);
    ASSERT_FALSE(outcome.truncated);
    ended += outcome.terminated;
    close += std::abs(height - 1) < 0.05;
  }
  EXPECT_GT(ended, 500);
  EXPECT_GT(close, 50);
}

TEST(Rules, AnglesOfLinksWrapAndTheirSpeedsAreLimited) {
  Random random(4);
  int wrapped = 0, fastest = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::vector<double> from{random.uniform(-pi, pi), random.uniform(-pi, pi), random.uniform(-4 * pi, 4 * pi),
                                   random.uniform(-9 * pi, 9 * pi)};
    const auto action = random.below(3);
    const auto x = step_from<Acrobot>(from, action).state;
    ASSERT_LE(std::abs(x[0]), pi);
    ASSERT_LE(std::abs(x[1]), pi);
    ASSERT_LE(std::abs(x[2]), 4 * pi);
    ASSERT_LE(std::abs(x[3]), 9 * pi);
    wrapped += std::abs(x[0] - from[0]) > pi;
    fastest += std::abs(x[2]) == 4 * pi || std::abs(x[3]) == 9 * pi;
    // It is the same place by another name. Compared as directions: at the border they may be either.
    const auto same = step_from<Acrobot>({from[0] + 4 * pi, from[1] - 2 * pi, from[2], from[3]}, action).state;
    for (size_t j = 0; j < 2; ++j) {
      ASSERT_NEAR(std::cos(same[j]), std::cos(x[j]), 1e-8);
      ASSERT_NEAR(std::sin(same[j]), std::sin(x[j]), 1e-8);
      ASSERT_NEAR(same[j + 2], x[j + 2], 1e-7);
    }
  }
  EXPECT_GT(wrapped, 50);
  EXPECT_GT(fastest, 50);
}

TEST(Rules, ACarIsThereWhenItIsOnTheHillAndDoesNotRollBack) {
  const auto end = step_from<MountainCar>({0.48, 0.05}, 2);
  EXPECT_TRUE(end.outcome.terminated);
  EXPECT_EQ(end.outcome.reward, -1);
  const auto before = step_from<MountainCar>({0.48, 0.01}, 2);
  EXPECT_FALSE(before.outcome.over());
  EXPECT_EQ(before.outcome.reward, -1);
  const auto back = step_from<MountainCar>({0.56, -0.02}, 1);
  EXPECT_GT(back.state[0], 0.5);
  EXPECT_FALSE(back.outcome.over());
}

TEST(Rules, ACarStopsAtTheWallAndGoesNoFasterThanItCan) {
  const auto wall = step_from<MountainCar>({-1.19, -0.05}, 0);
  EXPECT_EQ(wall.state, (std::vector<double>{-1.2, 0}));
  EXPECT_FALSE(wall.outcome.over());
  const auto right = step_from<MountainCar>({-0.9, 0.0699}, 2);
  EXPECT_EQ(right.state[1], 0.07);
  EXPECT_NEAR(right.state[0], -0.83, 1e-12);
  const auto left = step_from<MountainCar>({0, -0.0699}, 0);
  EXPECT_EQ(left.state[1], -0.07);
  EXPECT_NEAR(left.state[0], -0.07, 1e-12);
  const auto border = step_from<MountainCar>({0.58, 0.069}, 2);
  EXPECT_EQ(border.state[0], 0.6);
}

}  // namespace
}  // namespace farad::acer
