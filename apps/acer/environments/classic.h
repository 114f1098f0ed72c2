#pragma once

#include <array>

#include "acer/environments/environment.h"

/// The classic control problems, with the dynamics of Gymnasium's environments of the same names. State and dynamics
/// are in double precision; what is observed is rounded.
namespace farad::acer {

/// A pole on a cart that is pushed left or right (actions 0, 1), and must not fall.
class CartPole final : public Environment {
 public:
  CartPole();

 private:
  void begin(Random& random) override;
  Outcome advance(const Action& action, Random& random) override;
  void observe(std::span<float> observation) const override;
  std::vector<double> state() const override { return {x_.begin(), x_.end()}; }
  void set_state(std::span<const double> state) override;

  std::array<double, 4> x_{};  // position, its speed, angle, its speed
};

/// Two links, of which the joint between them is driven, are to swing their end above a line.
class Acrobot final : public Environment {
 public:
  Acrobot();

 private:
  void begin(Random& random) override;
  Outcome advance(const Action& action, Random& random) override;
  void observe(std::span<float> observation) const override;
  std::vector<double> state() const override { return {x_.begin(), x_.end()}; }
  void set_state(std::span<const double> state) override;

  std::array<double, 4> x_{};  // two angles, their speeds
};

/// A car between two hills, too weak to climb the right one without a run-up.
class MountainCar final : public Environment {
 public:
  MountainCar();

 private:
  void begin(Random& random) override;
  Outcome advance(const Action& action, Random& random) override;
  void observe(std::span<float> observation) const override;
  std::vector<double> state() const override { return {x_, v_}; }
  void set_state(std::span<const double> state) override { x_ = state[0], v_ = state[1]; }

  double x_ = 0, v_ = 0;
};

/// A pendulum to be swung up and held there by a torque that is too small to lift it; one amount.
class Pendulum final : public Environment {
 public:
  Pendulum();

 private:
  void begin(Random& random) override;
  Outcome advance(const Action& action, Random& random) override;
  void observe(std::span<float> observation) const override;
  std::vector<double> state() const override { return {angle_, speed_}; }
  void set_state(std::span<const double> state) override { angle_ = state[0], speed_ = state[1]; }

  double angle_ = 0, speed_ = 0;
};

}  // namespace farad::acer
