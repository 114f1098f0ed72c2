#include "acer/audit_direction.h"

#include <farad/audit.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "acer/direction.h"
#include "acer/gaussian.h"
#include "acer/random.h"

namespace farad::acer {
namespace {

using Numbers = std::vector<double>;

constexpr int samples = 1000;
constexpr double tightest = 0.5;  // Of these samples it bounds many.

double longest_of(const Numbers& direction) {
  double longest = 1;
  for (const double x : direction) longest = audit::worse(longest, std::abs(x));
  return longest;
}

Numbers distribution(Random& random) {
  Numbers p(3);
  double sum = 0;
  for (double& x : p) sum += x = std::exp(random.uniform(-6, 0));
  for (double& x : p) x /= sum;
  return p;
}

/// A random state in which there are three actions to choose from.
struct ChoiceSample {
  explicit ChoiceSample(Random& random)
      : policy(distribution(random)),
        behaviour(distribution(random)),
        average(distribution(random)),
        q{random.normal(), random.normal(), random.normal()},
        value(policy[0] * q[0] + policy[1] * q[1] + policy[2] * q[2]),
        taken(random.below(3)),
        target(random.normal()) {}

  Direction direction(const Rules& rules) const {
    Direction found;
    find_direction(Sample{policy, behaviour, average, q, taken, value, target}, rules, found);
    return found;
  }

  /// Of the divergence from the average policy.
  Numbers away(const Rules& rules) const {
    Numbers k(policy.size());
    for (size_t a = 0; a < k.size(); ++a)
      k[a] = rules.statistics == Statistics::Logits ? policy[a] - average[a] : -average[a] / policy[a];
    return k;
  }

  /// What the direction goes uphill on. Weights are those of this state's policy wherever the statistics are.
  double hill(const Numbers& statistics, const Rules& rules) const {
    Numbers p = statistics;
    if (rules.statistics == Statistics::Logits) {
      double sum = 0;
      for (double& x : p) sum += x = std::exp(x);
      for (double& x : p) x /= sum;
    }
    double height = 0;
    for (size_t a = 0; a < p.size(); ++a) {
      const double ratio = policy[a] / behaviour[a];
      double weight = std::max(0.0, 1 - rules.truncation / ratio) * policy[a] * (q[a] - value);
      if (a == static_cast<size_t>(taken)) weight += std::min(rules.truncation, ratio) * (target - value);
      height += (weight - rules.entropy * p[a]) * std::log(p[a]);
    }
    return height;
  }
  Numbers statistics(const Rules& rules) const {
    Numbers all = policy;
    if (rules.statistics == Statistics::Logits) {
      for (double& x : all) x = std::log(x);
    }
    return all;
  }
  double step(const Rules& rules, size_t a) const {
    return rules.statistics == Statistics::Logits ? 1e-4 : 1e-4 * policy[a];
  }

  const Numbers policy, behaviour, average, q;
  const double value;
  const int64_t taken;
  const double target;
};

/// The same where an action is two amounts, some deviations around means.
struct AmountsSample {
  AmountsSample(Random& random, const Rules& rules) {
    for (auto* numbers : {&mean, &behaviour, &average, &action, &another}) {
      for (int i = 0; i < 2; ++i) numbers->push_back(3 * rules.deviation * random.normal());
    }
    advantage = random.normal();
    another_advantage = random.normal();
  }

  Direction direction(const Rules& rules) const {
    Direction found;
    find_direction(GaussianSample{mean, behaviour, average, action, another, advantage, another_advantage}, rules,
                   found);
    return found;
  }
  Numbers away(const Rules& rules) const {
    const double variance = rules.deviation * rules.deviation;
    return {(mean[0] - average[0]) / variance, (mean[1] - average[1]) / variance};
  }
  double hill(const Numbers& means, const Rules& rules) const {
    const double twice = 2 * rules.deviation * rules.deviation;
    const auto apart = [](const Numbers& a, const Numbers& b) {
      return (a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1]);
    };
    const auto ratio = [&](const Numbers& there) {
      return std::exp((apart(there, behaviour) - apart(there, mean)) / twice);
    };
    const double by_action = std::min(rules.truncation, ratio(action)) * advantage;
    const double by_another = std::max(0.0, 1 - rules.truncation / ratio(another)) * another_advantage;
    return -(by_action * apart(action, means) + by_another * apart(another, means)) / twice;
  }
  Numbers statistics(const Rules&) const { return mean; }
  double step(const Rules& rules, size_t) const { return 1e-3 * rules.deviation; }

  Numbers mean, behaviour, average, action, another;
  double advantage = 0, another_advantage = 0;
};

template <class Drawn>
double bounded_worst(const Rules& rules, uint64_t seed, Drawn drawn) {
  Random random(seed);
  double worst = 0;
  for (int i = 0; i < samples; ++i) {
    const auto sample = drawn(random);
    const auto direction = sample.direction(rules);
    const Numbers k = sample.away(rules);
    double kz = 0, kk = 0, moved = 0;
    for (size_t a = 0; a < k.size(); ++a) {
      kz += k[a] * direction.allowed[a];
      kk += k[a] * k[a];
      moved += k[a] * (direction.wanted[a] - direction.allowed[a]);
    }
    const double longest = longest_of(direction.wanted), scale = longest * std::max(1.0, std::sqrt(kk));
    worst = audit::worse(worst, (kz - rules.trust) / scale);
    if (direction.wanted == direction.allowed) continue;
    worst = audit::worse(worst, std::abs(kz - rules.trust) / scale);
    for (size_t a = 0; a < k.size(); ++a) {
      const double away = direction.wanted[a] - direction.allowed[a] - moved / kk * k[a];
      worst = audit::worse(worst, std::abs(away) / longest);
    }
  }
  return worst;
}

template <class Drawn>
double weighted_worst(const Rules& rules, uint64_t seed, Drawn drawn) {
  Random random(seed);
  double worst = 0;
  for (int i = 0; i < samples; ++i) {
    const auto sample = drawn(random);
    const auto wanted = sample.direction(rules).wanted;
    const auto here = sample.statistics(rules);
    for (size_t a = 0; a < here.size(); ++a) {
      const double step = sample.step(rules, a);
      const auto moved = [&](double by) {
        auto there = here;
        there[a] += by;
        return sample.hill(there, rules);
      };
      const double slope = (moved(step) - moved(-step)) / (2 * step);
      worst = audit::worse(worst, std::abs(slope - wanted[a]) / longest_of(wanted));
    }
  }
  return worst;
}

}  // namespace

double worst_bounded_direction(const Rules& rules, uint64_t seed, bool of_amounts) {
  auto tight = rules;
  tight.trust = std::min(rules.trust, tightest);
  if (of_amounts) return bounded_worst(tight, seed, [&](Random& random) { return AmountsSample(random, tight); });
  return bounded_worst(tight, seed, [](Random& random) { return ChoiceSample(random); });
}

double worst_weighted_direction(const Rules& rules, uint64_t seed, bool of_amounts) {
  if (of_amounts) return weighted_worst(rules, seed, [&](Random& random) { return AmountsSample(random, rules); });
  return weighted_worst(rules, seed, [](Random& random) { return ChoiceSample(random); });
}

}  // namespace farad::acer
