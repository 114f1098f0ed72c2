#include "acer/environments/classic.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace farad::acer {
namespace {

constexpr double pi = std::numbers::pi;
using Four = std::array<double, 4>;

double wrapped(double angle) {
  while (angle > pi) angle -= 2 * pi;
  while (angle < -pi) angle += 2 * pi;
  return angle;
}

}  // namespace

// --- CartPole ---

CartPole::CartPole()
    : Environment({.name = "CartPole-v1", .observation_size = 4, .actions = 2, .time_limit = 500, .solved = 475}) {}

void CartPole::begin(Random& random) {
  for (double& x : x_) x = random.uniform(-0.05, 0.05);
}

Outcome CartPole::advance(const Action& action, Random&) {
  constexpr double gravity = 9.8, pole_mass = 0.1, mass = 1.0 + pole_mass, half_length = 0.5;
  constexpr double moment = pole_mass * half_length, push = 10, time_step = 0.02;
  auto& [x, v, angle, spin] = x_;
  const double force = action.choice == 1 ? push : -push;
  const double sine = std::sin(angle), cosine = std::cos(angle);
  const double pushed = (force + moment * spin * spin * sine) / mass;
  const double spin_up =
      (gravity * sine - cosine * pushed) / (half_length * (4.0 / 3.0 - pole_mass * cosine * cosine / mass));
  const double speed_up = pushed - moment * spin_up * cosine / mass;
  // Explicit Euler: positions move by the speeds of before.
  x += time_step * v;
  v += time_step * speed_up;
  angle += time_step * spin;
  spin += time_step * spin_up;
  return {.reward = 1, .terminated = std::abs(x) > 2.4 || std::abs(angle) > 12 * 2 * pi / 360};
}

void CartPole::observe(std::span<float> observation) const { std::copy(x_.begin(), x_.end(), observation.begin()); }

void CartPole::set_state(std::span<const double> state) { std::copy_n(state.begin(), 4, x_.begin()); }

// --- Acrobot ---

namespace {

/// How fast the state changes under a torque.
Four acrobot_slope(const Four& x, double torque) {
  constexpr double mass = 1, length = 1, centre = 0.5, inertia = 1, gravity = 9.8;
  const auto& [a1, a2, s1, s2] = x;
  const double sine = std::sin(a2), cosine = std::cos(a2);
  const double d1 = mass * centre * centre + mass * (length * length + centre * centre + 2 * length * centre * cosine) +
                    inertia + inertia;
  const double d2 = mass * (centre * centre + length * centre * cosine) + inertia;
  const double phi2 = mass * centre * gravity * std::cos(a1 + a2 - pi / 2);
  const double phi1 = -mass * length * centre * s2 * s2 * sine - 2 * mass * length * centre * s2 * s1 * sine +
                      (mass * centre + mass * length) * gravity * std::cos(a1 - pi / 2) + phi2;
  const double up2 = (torque + d2 / d1 * phi1 - mass * length * centre * s1 * s1 * sine - phi2) /
                     (mass * centre * centre + inertia - d2 * d2 / d1);
  const double up1 = -(d2 * up2 + phi1) / d1;
  return {s1, s2, up1, up2};
}

Four moved(const Four& x, const Four& slope, double time) {
  Four y;
  for (size_t i = 0; i < 4; ++i) y[i] = x[i] + time * slope[i];
  return y;
}

}  // namespace

Acrobot::Acrobot()
    : Environment({.name = "Acrobot-v1",
                   .observation_size = 6,
                   .actions = 3,
                   .time_limit = 500,
                   .solved = -100,
                   .units = {1, 1, 1, 1, 2, 4}}) {}

void Acrobot::begin(Random& random) {
  for (double& x : x_) x = random.uniform(-0.1, 0.1);
}

Outcome Acrobot::advance(const Action& action, Random&) {
  constexpr double time_step = 0.2, fastest1 = 4 * pi, fastest2 = 9 * pi;
  const double torque = static_cast<double>(action.choice - 1);
  // One step of Runge and Kutta's method of fourth order, with the torque held.
  const auto k1 = acrobot_slope(x_, torque);
  const auto k2 = acrobot_slope(moved(x_, k1, time_step / 2), torque);
  const auto k3 = acrobot_slope(moved(x_, k2, time_step / 2), torque);
  const auto k4 = acrobot_slope(moved(x_, k3, time_step), torque);
  for (size_t i = 0; i < 4; ++i) x_[i] += time_step / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
  x_[0] = wrapped(x_[0]);
  x_[1] = wrapped(x_[1]);
  x_[2] = std::clamp(x_[2], -fastest1, fastest1);
  x_[3] = std::clamp(x_[3], -fastest2, fastest2);
  const bool up = -std::cos(x_[0]) - std::cos(x_[0] + x_[1]) > 1;
  return {.reward = up ? 0.0 : -1.0, .terminated = up};
}

void Acrobot::observe(std::span<float> observation) const {
  const double seen[] = {std::cos(x_[0]), std::sin(x_[0]), std::cos(x_[1]), std::sin(x_[1]), x_[2], x_[3]};
  std::copy(std::begin(seen), std::end(seen), observation.begin());
}

void Acrobot::set_state(std::span<const double> state) { std::copy_n(state.begin(), 4, x_.begin()); }

// --- MountainCar ---

MountainCar::MountainCar()
    : Environment({.name = "MountainCar-v0",
                   .observation_size = 2,
                   .actions = 3,
                   .time_limit = 200,
                   .solved = -110,
                   .units = {0.5, 0.02f}}) {}

void MountainCar::begin(Random& random) {
  x_ = random.uniform(-0.6, -0.4);
  v_ = 0;
}

Outcome MountainCar::advance(const Action& action, Random&) {
  v_ += static_cast<double>(action.choice - 1) * 0.001 - 0.0025 * std::cos(3 * x_);
  v_ = std::clamp(v_, -0.07, 0.07);
  x_ = std::clamp(x_ + v_, -1.2, 0.6);
  if (x_ <= -1.2 && v_ < 0) v_ = 0;  // It hits the wall.
  return {.reward = -1, .terminated = x_ >= 0.5 && v_ >= 0};
}

void MountainCar::observe(std::span<float> observation) const {
  observation[0] = static_cast<float>(x_);
  observation[1] = static_cast<float>(v_);
}

// --- Pendulum ---

namespace {

constexpr double most_torque = 2;

}  // namespace

Pendulum::Pendulum()
    : Environment({.name = "Pendulum-v1",
                   .observation_size = 3,
                   .amounts = 1,
                   .amount_limit = most_torque,
                   .time_limit = 200,
                   .reward_scale = 0.1,
                   .solved = -200}) {}

void Pendulum::begin(Random& random) {
  angle_ = random.uniform(-pi, pi);
  speed_ = random.uniform(-1, 1);
}

Outcome Pendulum::advance(const Action& action, Random&) {
  constexpr double gravity = 10, time_step = 0.05, fastest = 8;
  const double torque = std::clamp(action.amounts[0], -most_torque, most_torque);
  const double off = wrapped(angle_);
  const double cost = off * off + 0.1 * speed_ * speed_ + 0.001 * torque * torque;
  speed_ += (1.5 * gravity * std::sin(angle_) + 3 * torque) * time_step;  // a rod of mass 1 and length 1
  speed_ = std::clamp(speed_, -fastest, fastest);
  angle_ += speed_ * time_step;
  return {.reward = -cost};
}

void Pendulum::observe(std::span<float> observation) const {
  observation[0] = static_cast<float>(std::cos(angle_));
  observation[1] = static_cast<float>(std::sin(angle_));
  observation[2] = static_cast<float>(speed_);
}

}  // namespace farad::acer
