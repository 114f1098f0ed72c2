#include "acer/gaussian.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace farad::acer {
namespace {

double squared_distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

double length_of(std::span<const double> v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

}  // namespace

double density_ratio(std::span<const double> action, std::span<const double> mean, std::span<const double> behaviour,
                     double deviation) {
  const double apart = squared_distance(action, behaviour) - squared_distance(action, mean);
  return std::exp(apart / (2 * deviation * deviation));
}

void find_direction(const GaussianSample& sample, const Rules& rules, Direction& direction) {
  const size_t amounts = sample.mean.size();
  const double variance = rules.deviation * rules.deviation;
  auto& [g, k, z, policy_term, correction_term, entropy, divergence, bounded, effect] = direction;

  const double scale = 0.5 * static_cast<double>(amounts) * std::log(2 * std::numbers::pi * variance);
  const auto log_density = [&](std::span<const double> action) {
    return -squared_distance(action, sample.mean) / (2 * variance) - scale;
  };
  entropy = scale + 0.5 * static_cast<double>(amounts);  // The same everywhere, so it has no gradient.
  divergence = squared_distance(sample.average, sample.mean) / (2 * variance);

  const double ratio = density_ratio(sample.action, sample.mean, sample.behaviour, rules.deviation);
  const double weight = rules.defect == Defect::PolicyCut ? 0 : std::min(rules.truncation, ratio) * sample.advantage;
  policy_term = weight * log_density(sample.action);

  const double another_ratio = density_ratio(sample.another, sample.mean, sample.behaviour, rules.deviation);
  const double advantage = rules.defect == Defect::QTakenOnly ? sample.advantage : sample.another_advantage;
  double correction = std::max(0.0, 1 - rules.truncation / another_ratio) * advantage;
  correction_term = correction * log_density(sample.another);
  if (rules.defect == Defect::BiasAttached && correction != 0)
    correction += rules.truncation / another_ratio * advantage * log_density(sample.another);

  g.resize(amounts);
  k.resize(amounts);
  for (size_t i = 0; i < amounts; ++i) {
    g[i] =
        (weight * (sample.action[i] - sample.mean[i]) + correction * (sample.another[i] - sample.mean[i])) / variance;
    k[i] = (sample.mean[i] - sample.average[i]) / variance;
  }
  const double excess = project(rules, direction);
  effect = bounded && length_of(g) > 0 ? excess * length_of(k) / length_of(g) : 0;
}

}  // namespace farad::acer
