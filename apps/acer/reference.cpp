#include "acer/reference.h"

#include <algorithm>
#include <cmath>

#include "acer/plain_network.h"
#include "acer/rows.h"

namespace farad::acer {
namespace {

using Numbers = std::vector<double>;

struct State {
  Numbers policy, q;
  double value = 0;
};

State look(PlainNetwork<double>& network, std::span<const float> observation) {
  network.forward(observation);
  State state{{network.policy().begin(), network.policy().end()}, {network.q().begin(), network.q().end()}};
  for (size_t a = 0; a < state.q.size(); ++a) state.value += state.policy[a] * state.q[a];
  return state;
}

/// Uphill in the logits: the policy gradient w (e_a - p) + b - p sum(b), the entropy's -p (log p + H), and the bound.
Numbers uphill(const State& state, std::span<const double> mu, const Numbers& average, size_t taken, double advantage,
               const Rules& rules) {
  const auto& p = state.policy;
  const double c = rules.truncation, w = std::min(c, p[taken] / mu[taken]) * advantage;
  Numbers counts(p.size(), 0.0);  // of the gradients of log p
  counts[taken] = w;
  double total = w, entropy = 0;
  for (size_t a = 0; a < p.size(); ++a) {
    const double b = std::max(0.0, 1 - c * mu[a] / p[a]) * p[a] * (state.q[a] - state.value);
    counts[a] += b;
    total += b;
    entropy -= p[a] * std::log(p[a]);
  }
  Numbers g(p.size());
  double slope = 0, steepness = 0;  // k'g and k'k, in whichever statistics
  for (size_t a = 0; a < p.size(); ++a) {
    g[a] = counts[a] - p[a] * total - rules.entropy * p[a] * (std::log(p[a]) + entropy);
    if (rules.statistics == Statistics::Logits) {
      slope += (p[a] - average[a]) * g[a];
      steepness += (p[a] - average[a]) * (p[a] - average[a]);
    } else {
      const double odds = average[a] / p[a];
      slope -= odds * (counts[a] / p[a] - rules.entropy * (std::log(p[a]) + 1));
      steepness += odds * odds;
    }
  }
  if (rules.trust_region && steepness > 0 && slope > rules.trust) {
    // In either statistics the divergence's gradient by the logits is p - average.
    for (size_t a = 0; a < p.size(); ++a) g[a] -= (slope - rules.trust) / steepness * (p[a] - average[a]);
  }
  return g;
}

}  // namespace

std::vector<std::vector<double>> reference_gradient(const NetworkImpl& network, const NetworkImpl& average,
                                                    const Batch& batch, const Rules& rules) {
  PlainNetwork<double> now(network.shape()), past(network.shape());
  now.copy(network);
  past.copy(average);
  now.clear_gradients();
  const int64_t width = batch.observation_size();
  const auto steps = static_cast<double>(batch.steps());
  for (size_t w = 0; w < batch.windows().size(); ++w) {
    const auto& window = batch.windows()[w];
    const auto length = static_cast<size_t>(window.length);
    std::vector<State> states;
    for (int64_t i = 0; i < window.length; ++i)
      states.push_back(look(now, row_of(batch.observations(), window.begin + i, width)));
    double after = look(now, row_of(batch.afters(), static_cast<int64_t>(w), width)).value;
    if (window.ending == Ending::Terminated) after = 0;

    for (size_t i = 0; i < length; ++i) {
      const int64_t row = window.begin + static_cast<int64_t>(i);
      const auto& taken = batch.taken();
      // Q plus all errors of one step ahead, each discounted and cut by the traces on the way there.
      double target = 0, reach = 1;
      for (size_t j = i; j < length; ++j) {
        const auto at = static_cast<size_t>(window.begin) + j;
        const auto a = static_cast<size_t>(taken[at]);
        if (j > i) reach *= std::min(1.0, states[j].policy[a] / batch.behaviour(static_cast<int64_t>(at))[a]);
        const double next = j + 1 < length ? states[j + 1].value : after;
        target += reach * (batch.rewards()[at] + rules.discount * next - states[j].q[a]);
        reach *= rules.discount;
      }
      const auto action = static_cast<size_t>(taken[static_cast<size_t>(row)]);
      target += states[i].q[action];

      past.forward(row_of(batch.observations(), row, width));
      auto logits = uphill(states[i], batch.behaviour(row), {past.policy().begin(), past.policy().end()}, action,
                           target - states[i].value, rules);
      for (double& x : logits) x /= -steps;
      Numbers q(logits.size(), 0.0);
      q[action] = rules.critic * (states[i].q[action] - target) / steps;
      now.forward(row_of(batch.observations(), row, width));
      now.backward(logits, q);
    }
  }
  return now.gradients();
}

}  // namespace farad::acer
