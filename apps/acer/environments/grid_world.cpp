#include "acer/environments/grid_world.h"

#include <farad/error.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace farad::acer {
namespace {

constexpr std::string_view map =
    "....G"
    ".#.#P"
    ".#..."
    "S..#.";

char at(int64_t cell) { return map[static_cast<size_t>(cell)]; }

int64_t neighbour(int64_t cell, int64_t way) {
  constexpr int64_t down[] = {-1, 0, 1, 0}, right[] = {0, 1, 0, -1};
  const int64_t row = cell / GridWorld::columns + down[way], column = cell % GridWorld::columns + right[way];
  if (row < 0 || row >= GridWorld::rows || column < 0 || column >= GridWorld::columns) return cell;
  const int64_t next = row * GridWorld::columns + column;
  return at(next) == '#' ? cell : next;
}

}  // namespace

GridWorld::GridWorld(double slip)
    : Environment({.name = "GridWorld", .observation_size = cells, .actions = ways, .time_limit = 100, .solved = 0.7}),
      slip_(slip) {}

bool GridWorld::is_open(int64_t cell) { return at(cell) == '.' || at(cell) == 'S'; }

std::vector<GridWorld::Chance> GridWorld::chances(int64_t cell, int64_t action) const {
  std::vector<Chance> all;
  const auto add = [&](double probability, int64_t way) {
    if (probability <= 0) return;
    const int64_t next = neighbour(cell, way);
    const double reward = at(next) == 'G' ? 1.0 : at(next) == 'P' ? -1.0 : -0.04;
    all.push_back({probability, next, reward, !is_open(next)});
  };
  add(1 - 2 * slip_, action);
  add(slip_, (action + 1) % ways);
  add(slip_, (action + ways - 1) % ways);
  return all;
}

template <class Worth>
GridWorld::Table GridWorld::fixed_point(double discount, Worth worth) const {
  Table q(cells * ways, 0.0);
  // Errors shrink by the discount in each sweep, or faster where episodes end.
  for (int sweep = 0; sweep < 100'000; ++sweep) {
    double change = 0;
    for (int64_t cell = 0; cell < cells; ++cell) {
      if (!is_open(cell)) continue;
      for (int64_t way = 0; way < ways; ++way) {
        double sum = 0;
        for (const auto& chance : chances(cell, way))
          sum += chance.probability * (chance.reward + (chance.terminated ? 0 : discount * worth(q, chance.cell)));
        auto& value = q[static_cast<size_t>(cell * ways + way)];
        change = std::max(change, std::abs(sum - value));
        value = sum;
      }
    }
    if (change < 1e-15) return q;
  }
  throw Error("[acer] GridWorld: values do not settle at a discount of " + std::to_string(discount));
}

GridWorld::Table GridWorld::values_of(const Table& policy, double discount) const {
  return fixed_point(discount, [&](const Table& q, int64_t cell) {
    double value = 0;
    for (auto i = static_cast<size_t>(cell * ways); i < static_cast<size_t>((cell + 1) * ways); ++i)
      value += policy[i] * q[i];
    return value;
  });
}

GridWorld::Table GridWorld::best_values(double discount) const {
  return fixed_point(discount, [](const Table& q, int64_t cell) {
    const auto first = q.begin() + cell * ways;
    return *std::max_element(first, first + ways);
  });
}

void GridWorld::begin(Random&) { cell_ = static_cast<int64_t>(map.find('S')); }

Outcome GridWorld::advance(const Action& action, Random& random) {
  const auto all = chances(cell_, action.choice);
  double left = random.uniform();
  size_t which = 0;
  while (which + 1 < all.size() && (left -= all[which].probability) >= 0) ++which;
  cell_ = all[which].cell;
  return {.reward = all[which].reward, .terminated = all[which].terminated};
}

void GridWorld::observe(std::span<float> observation) const {
  std::fill(observation.begin(), observation.end(), 0.0f);
  observation[static_cast<size_t>(cell_)] = 1;
}

}  // namespace farad::acer
