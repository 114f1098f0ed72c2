#pragma once

#include "acer/environments/environment.h"

namespace farad::acer {

/// A maze of four by five cells with walls, a pit (-1) and a goal (+1), which both end the episode; each step before
/// costs 0.04. Actions 0 to 3 go up, right, down, left; into a wall or the border one stays. Observed is which cell one
/// is in. With slip > 0 a step goes to either side of where it should, with that probability each.
///
/// It is small enough for its values to be computed exactly, which what is learned can be compared with.
class GridWorld final : public Environment {
 public:
  static constexpr int64_t rows = 4, columns = 5, cells = rows * columns, ways = 4;
  explicit GridWorld(double slip = 0);

  /// What may come of an action.
  struct Chance {
    double probability = 0;
    int64_t cell = 0;
    double reward = 0;
    bool terminated = false;
  };
  std::vector<Chance> chances(int64_t cell, int64_t action) const;
  /// Cells that an episode can begin or go on in.
  static bool is_open(int64_t cell);

  /// Values of cells and actions: cells x ways numbers.
  using Table = std::vector<double>;
  /// Q of the policy with these probabilities (cells x ways), by dynamic programming until nothing changes any more.
  Table values_of(const Table& policy, double discount) const;
  /// Q of the best policy.
  Table best_values(double discount) const;

  int64_t cell() const { return cell_; }

 private:
  void begin(Random& random) override;
  Outcome advance(const Action& action, Random& random) override;
  void observe(std::span<float> observation) const override;
  std::vector<double> state() const override { return {static_cast<double>(cell_)}; }
  void set_state(std::span<const double> state) override { cell_ = static_cast<int64_t>(state[0]); }

  /// Q for which `worth(q, cell)` is the value of a cell.
  template <class Worth>
  Table fixed_point(double discount, Worth worth) const;

  const double slip_;
  int64_t cell_ = 0;
};

}  // namespace farad::acer
