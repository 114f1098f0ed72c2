#include "acer/direction.h"

#include <algorithm>
#include <cmath>

namespace farad::acer {
namespace {

/// Probabilities in f32 can be 0; what they divide is multiplied by them again on the way to the logits.
constexpr double least = 1e-30;

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// |Jv| where J is the derivative of the statistics by the logits.
double length_in_logits(std::span<const double> v, std::span<const double> policy, Statistics statistics) {
  if (statistics == Statistics::Logits) return std::sqrt(dot(v, v));
  const double mean = dot(v, policy);
  double sum = 0;
  for (size_t a = 0; a < v.size(); ++a) sum += policy[a] * policy[a] * (v[a] - mean) * (v[a] - mean);
  return std::sqrt(sum);
}

}  // namespace

double project(const Rules& rules, Direction& direction) {
  auto& g = direction.wanted;
  auto& k = direction.away;
  if (rules.defect == Defect::KlSign) {
    for (double& slope : k) slope = -slope;
  }
  const double steepness = rules.defect == Defect::DenominatorG2 ? dot(g, g) : dot(k, k);
  const double excess = rules.trust_region && steepness > 0 ? (dot(k, g) - rules.trust) / steepness : 0;
  direction.bounded = excess > 0;
  direction.allowed = g;
  if (!direction.bounded) return 0;
  for (size_t a = 0; a < g.size(); ++a) direction.allowed[a] -= excess * k[a];
  return excess;
}

double Sample::ratio(size_t a) const { return policy[a] / std::max(behaviour[a], least); }

void find_direction(const Sample& sample, const Rules& rules, Direction& direction) {
  const size_t actions = sample.policy.size();
  const auto taken = static_cast<size_t>(sample.action);
  auto& [g, k, z, policy_term, correction_term, entropy, divergence, bounded, effect] = direction;
  g.assign(actions, 0.0);
  k.resize(actions);

  auto& logs = z;  // which is free until the end
  logs.resize(actions);
  entropy = divergence = correction_term = 0;
  for (size_t a = 0; a < actions; ++a) {
    logs[a] = std::log(std::max(sample.policy[a], least));
    entropy -= sample.policy[a] * logs[a];
    if (sample.average[a] > 0) divergence += sample.average[a] * (std::log(sample.average[a]) - logs[a]);
  }

  // In g for now: how much the logarithm of each probability is to count.
  const bool cut = rules.defect == Defect::PolicyCut;
  const double weight = cut ? 0 : std::min(rules.truncation, sample.ratio(taken)) * (sample.target - sample.value);
  const double entropy_weight = cut ? 0 : rules.entropy;
  g[taken] = weight;
  policy_term = weight * logs[taken];
  double corrections = 0;
  for (size_t a = 0; a < actions; ++a) {
    const double ratio = sample.ratio(a);
    if (ratio <= rules.truncation) continue;
    const double q = sample.q[rules.defect == Defect::QTakenOnly ? taken : a];
    const double correction = (1 - rules.truncation / ratio) * sample.policy[a] * (q - sample.value);
    g[a] += correction;
    if (rules.defect == Defect::BiasAttached) g[a] += sample.policy[a] * (q - sample.value) * logs[a];
    corrections += correction;
    correction_term += correction * logs[a];
  }

  for (size_t a = 0; a < actions; ++a) {
    const double p = std::max(sample.policy[a], least);
    if (rules.statistics == Statistics::Probabilities) {
      g[a] = g[a] / p - entropy_weight * (logs[a] + 1);
      k[a] = -sample.average[a] / p;
    } else {
      g[a] += -sample.policy[a] * (weight + corrections) - entropy_weight * sample.policy[a] * (logs[a] + entropy);
      k[a] = sample.policy[a] - sample.average[a];
    }
  }

  if (rules.defect == Defect::TakenOnly) {
    for (size_t a = 0; a < actions; ++a) {
      if (a != taken) g[a] = k[a] = 0;
    }
  }

  const double excess = project(rules, direction);
  effect = 0;
  if (bounded) {
    const double length = length_in_logits(g, sample.policy, rules.statistics);
    if (length > 0) effect = excess * length_in_logits(k, sample.policy, rules.statistics) / length;
  }
}

}  // namespace farad::acer
