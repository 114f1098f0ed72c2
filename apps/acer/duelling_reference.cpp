#include "acer/duelling_reference.h"

#include <algorithm>
#include <cmath>

#include "acer/plain_network.h"
#include "acer/rows.h"

namespace farad::acer {
namespace {

using Amounts = std::vector<double>;

/// A state and all that is looked at there.
struct Looked {
  Amounts mean, behaviour, average, taken, another;
  std::vector<Amounts> drawn;  // for the mean of A
  double value = 0, q = 0, other_q = 0;

  /// log(pi / mu) of an action, per variance.
  double log_ratio(const Amounts& action) const {
    double sum = 0;
    for (size_t i = 0; i < mean.size(); ++i)
      sum += (mean[i] - behaviour[i]) * (action[i] - (mean[i] + behaviour[i]) / 2);
    return sum;
  }
};

Looked look_at(PlainDuellingNetwork<double>& now, PlainDuellingNetwork<double>& past, const Batch& batch, int64_t row,
               const Rules& rules) {
  const auto amounts = [](auto span) { return Amounts(span.begin(), span.end()); };
  const auto seen = row_of(batch.observations(), row, batch.observation_size());
  now.forward(seen);
  past.forward(seen);
  Looked one{amounts(now.mean()),
             amounts(batch.behaviour(row)),
             amounts(past.mean()),
             amounts(batch.taken_amounts(row)),
             {},
             {},
             now.value()};
  const auto noise = batch.noise(row);
  const size_t width = one.mean.size();
  for (size_t i = 0; i < noise.size(); i += width) {
    auto& action = one.drawn.emplace_back(one.mean);
    for (size_t j = 0; j < width; ++j) action[j] += rules.deviation * noise[i + j];
  }
  one.another = one.drawn.back();
  one.drawn.pop_back();
  double others = 0;
  for (const auto& action : one.drawn) others += now.advantage(action);
  others /= static_cast<double>(one.drawn.size());
  one.q = one.value + now.advantage(one.taken) - others;
  one.other_q = one.value + now.advantage(one.another) - others;
  return one;
}

/// Uphill in the means.
Amounts uphill_in_means(const Looked& one, double advantage, const Rules& rules) {
  const double variance = rules.deviation * rules.deviation, c = rules.truncation;
  const double ratio = std::exp(one.log_ratio(one.taken) / variance);
  const double inverse = std::exp(-one.log_ratio(one.another) / variance);
  const double by_taken = std::min(c, ratio) * advantage;
  const double by_another = std::max(0.0, 1 - c * inverse) * (one.other_q - one.value);
  Amounts g(one.mean.size());
  double slope = 0, steepness = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    g[i] = by_taken * (one.taken[i] - one.mean[i]) / variance + by_another * (one.another[i] - one.mean[i]) / variance;
    const double away = (one.mean[i] - one.average[i]) / variance;
    slope += away * g[i];
    steepness += away * away;
  }
  if (rules.trust_region && steepness > 0 && slope > rules.trust) {
    for (size_t i = 0; i < g.size(); ++i)
      g[i] -= (slope - rules.trust) / steepness * (one.mean[i] - one.average[i]) / variance;
  }
  return g;
}

}  // namespace

std::vector<std::vector<double>> reference_gradient(const DuellingNetworkImpl& network,
                                                    const DuellingNetworkImpl& average, const Batch& batch,
                                                    const Rules& rules) {
  PlainDuellingNetwork<double> now(network.shape()), past(network.shape());
  now.copy(network);
  past.copy(average);
  now.clear_gradients();
  const auto steps = static_cast<double>(batch.steps()), amounts = static_cast<double>(batch.amounts());
  const double variance = rules.deviation * rules.deviation;
  for (size_t w = 0; w < batch.windows().size(); ++w) {
    const auto& window = batch.windows()[w];
    std::vector<Looked> states;
    for (int64_t i = 0; i < window.length; ++i) states.push_back(look_at(now, past, batch, window.begin + i, rules));
    now.forward(row_of(batch.afters(), static_cast<int64_t>(w), batch.observation_size()));
    const double after = window.ending == Ending::Terminated ? 0 : now.value();

    for (size_t i = 0; i < states.size(); ++i) {
      const auto& one = states[i];
      // Q plus all errors of one step ahead, discounted; for the critic also cut by the traces on the way there.
      double critic_target = one.q, policy_target = one.q, discount = 1, trace = 1;
      for (size_t j = i; j < states.size(); ++j) {
        if (j > i) trace *= std::min(1.0, std::exp(states[j].log_ratio(states[j].taken) / variance / amounts));
        const double next = j + 1 < states.size() ? states[j + 1].value : after;
        const double reward = batch.rewards()[static_cast<size_t>(window.begin) + j];
        const double error = reward + rules.discount * next - states[j].q;
        critic_target += discount * trace * error;
        policy_target += discount * error;
        discount *= rules.discount;
      }
      auto means = uphill_in_means(one, policy_target - one.value, rules);
      for (double& x : means) x /= -steps;
      const double by_q = rules.critic * (one.q - critic_target) / steps;
      const double ratio = std::exp(one.log_ratio(one.taken) / variance);
      std::vector<PlainDuellingNetwork<double>::Valued> advantages{{one.taken, by_q}};
      for (const auto& action : one.drawn)
        advantages.push_back({action, -by_q / static_cast<double>(one.drawn.size())});
      now.forward(row_of(batch.observations(), window.begin + static_cast<int64_t>(i), batch.observation_size()));
      now.backward(means, by_q + std::min(1.0, ratio) * by_q, advantages);
    }
  }
  return now.gradients();
}

}  // namespace farad::acer
