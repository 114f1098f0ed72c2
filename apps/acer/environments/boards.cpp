#include "acer/environments/boards.h"

#include <algorithm>
#include <cstdlib>

namespace farad::acer {

// --- Catch ---

Catch::Catch() : Environment({.name = "Catch", .observation_size = rows * columns, .actions = 3, .solved = 0.95}) {}

void Catch::begin(Random& random) {
  ball_row_ = 0;
  ball_column_ = random.below(columns);
  paddle_ = columns / 2;
}

Outcome Catch::advance(const Action& action, Random&) {
  paddle_ = std::clamp<int64_t>(paddle_ + action.choice - 1, 0, columns - 1);
  ++ball_row_;
  if (ball_row_ < rows - 1) return {};
  return {.reward = ball_column_ == paddle_ ? 1.0 : -1.0, .terminated = true};
}

void Catch::observe(std::span<float> observation) const {
  std::fill(observation.begin(), observation.end(), 0.0f);
  observation[static_cast<size_t>(ball_row_ * columns + ball_column_)] = 1;
  observation[static_cast<size_t>((rows - 1) * columns + paddle_)] = 1;
}

std::vector<double> Catch::state() const {
  return {static_cast<double>(ball_row_), static_cast<double>(ball_column_), static_cast<double>(paddle_)};
}

void Catch::set_state(std::span<const double> state) {
  ball_row_ = static_cast<int64_t>(state[0]);
  ball_column_ = static_cast<int64_t>(state[1]);
  paddle_ = static_cast<int64_t>(state[2]);
}

// --- Orchard ---

Orchard::Orchard()
    : Environment({.name = "Orchard", .observation_size = planes * side * side, .actions = 5, .time_limit = 200}) {}

void Orchard::begin(Random& random) {
  keeper_ = {side - 1, random.below(side)};
  crow_ = {0, random.below(side)};
  crow_moves_ = false;
  fruits_.fill({{-1, -1}, 0});
  for (auto& fruit : fruits_) fruit = grown(random);
}

Outcome Orchard::advance(const Action& action, Random& random) {
  constexpr int64_t down[] = {0, -1, 1, 0, 0}, right[] = {0, 0, 0, -1, 1};
  const auto way = static_cast<size_t>(action.choice);
  keeper_ = {std::clamp<int64_t>(keeper_.row + down[way], 0, side - 1),
             std::clamp<int64_t>(keeper_.column + right[way], 0, side - 1)};
  Outcome outcome;
  for (auto& fruit : fruits_) {
    const bool picked = fruit.at == keeper_;
    if (picked) outcome.reward += 1;
    if (picked || --fruit.left == 0) fruit = grown(random);
  }
  if (crow_moves_) move_crow(random);
  crow_moves_ = !crow_moves_;
  outcome.terminated = crow_ == keeper_;
  return outcome;
}

void Orchard::move_crow(Random& random) {
  const int64_t rows = keeper_.row - crow_.row, columns = keeper_.column - crow_.column;
  if (rows == 0 && columns == 0) return;
  // Along the longer way; along either where they are equal.
  const bool vertical = std::abs(rows) != std::abs(columns) ? std::abs(rows) > std::abs(columns) : random.below(2) == 0;
  if (vertical) {
    crow_.row += rows > 0 ? 1 : -1;
  } else {
    crow_.column += columns > 0 ? 1 : -1;
  }
}

Orchard::Fruit Orchard::grown(Random& random) const {
  while (true) {  // Of 64 cells at most six are taken.
    const Cell cell{random.below(side), random.below(side)};
    const bool taken = cell == keeper_ || cell == crow_ ||
                       std::any_of(fruits_.begin(), fruits_.end(), [&](const Fruit& one) { return one.at == cell; });
    if (!taken) return {cell, hangs_for};
  }
}

void Orchard::observe(std::span<float> observation) const {
  std::fill(observation.begin(), observation.end(), 0.0f);
  const auto at = [&](int64_t plane, const Cell& cell) -> float& {
    return observation[static_cast<size_t>((plane * side + cell.row) * side + cell.column)];
  };
  at(0, keeper_) = 1;
  at(1, crow_) = 1;
  for (const auto& fruit : fruits_) at(2, fruit.at) = static_cast<float>(fruit.left) / hangs_for;
  if (crow_moves_) std::fill(observation.end() - side * side, observation.end(), 1.0f);
}

std::vector<double> Orchard::state() const {
  std::vector<double> numbers;
  const auto put = [&](int64_t number) { numbers.push_back(static_cast<double>(number)); };
  for (const auto& cell : {keeper_, crow_}) put(cell.row), put(cell.column);
  put(crow_moves_);
  for (const auto& fruit : fruits_) put(fruit.at.row), put(fruit.at.column), put(fruit.left);
  return numbers;
}

void Orchard::set_state(std::span<const double> state) {
  auto next = state.begin();
  const auto take = [&] { return static_cast<int64_t>(*next++); };
  for (auto* cell : {&keeper_, &crow_}) cell->row = take(), cell->column = take();
  crow_moves_ = take() != 0;
  for (auto& fruit : fruits_) fruit.at.row = take(), fruit.at.column = take(), fruit.left = take();
}

}  // namespace farad::acer
