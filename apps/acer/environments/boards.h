#pragma once

#include <array>

#include "acer/environments/environment.h"

/// Games on boards of cells.
namespace farad::acer {

/// A ball falls down one of five columns, ten rows, one row a step; a paddle below is moved left, kept or moved right
/// (actions 0, 1, 2) to be under it at the end. Reward +1 or -1 in the ninth and last step.
class Catch final : public Environment {
 public:
  static constexpr int64_t rows = 10, columns = 5;
  Catch();

 private:
  void begin(Random& random) override;
  Outcome advance(const Action& action, Random& random) override;
  void observe(std::span<float> observation) const override;
  std::vector<double> state() const override;
  void set_state(std::span<const double> state) override;

  int64_t ball_row_ = 0, ball_column_ = 0, paddle_ = columns / 2;
};

/// An orchard of eight by eight cells. Its keeper stays or goes up, down, left or right (actions 0 to 4) and picks what
/// fruit it steps on, +1 each; a fruit that hangs for too long is gone and another one grows elsewhere. A crow flies
/// after the keeper, one cell every other step; when it gets there the day is over.
///
/// Observed are four planes: the keeper, the crow, the fruits as 1 down to 0 by how much longer they hang, and all ones
/// where the crow moves next.
class Orchard final : public Environment {
 public:
  static constexpr int64_t side = 8, fruits = 4, planes = 4, hangs_for = 24;
  Orchard();

 private:
  struct Cell {
    int64_t row = 0, column = 0;
    bool operator==(const Cell&) const = default;
  };
  struct Fruit {
    Cell at;
    int64_t left = 0;
  };

  void begin(Random& random) override;
  Outcome advance(const Action& action, Random& random) override;
  void observe(std::span<float> observation) const override;
  std::vector<double> state() const override;
  void set_state(std::span<const double> state) override;

  void move_crow(Random& random);
  /// Where neither keeper, crow nor another fruit is.
  Fruit grown(Random& random) const;

  Cell keeper_, crow_;
  std::array<Fruit, fruits> fruits_{};
  bool crow_moves_ = false;
};

}  // namespace farad::acer
