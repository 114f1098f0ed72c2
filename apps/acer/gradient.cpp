#include "acer/gradient.h"

#include <algorithm>

#include "acer/ahead.h"
#include "acer/retrace.h"
#include "acer/rows.h"

namespace farad::acer {

Findings Gradient::compute(NetworkImpl& network, const NetworkImpl& average, const Batch& batch) {
  const int64_t actions = batch.actions(), steps = batch.steps();
  const auto rows = steps + static_cast<int64_t>(batch.windows().size());
  const auto type = network.policy_head().weight.scalar_type();
  // One pass for both, because the calls of libtorch cost more than the few rows after windows, whose seeds are 0.
  seen_.assign(batch.observations().begin(), batch.observations().end());
  seen_.insert(seen_.end(), batch.afters().begin(), batch.afters().end());
  const auto observations = as_tensor(seen_, batch.observation_size(), type);
  const auto& output = pass_.forward(network, observations);
  policy_.clear();
  q_.clear();
  average_.clear();
  append(output.policy, policy_);
  append(output.q, q_);
  {
    const NoGraph no_graph;
    append(average.policy(observations.narrow(0, 0, steps)), average_);
  }
  find_targets(batch);

  Findings found;
  const auto count = static_cast<double>(steps);
  const auto rules = rules_for_directions(rules_, count);
  for (auto* seeds : {&policy_seeds_, &q_seeds_}) seeds->assign(static_cast<size_t>(rows * actions), 0.0);
  for (int64_t row = 0; row < steps; ++row) {
    const auto i = static_cast<size_t>(row);
    find_direction(sample(batch, row), rules, direction_);
    // Backward passes go downhill, z goes uphill.
    std::transform(direction_.allowed.begin(), direction_.allowed.end(), policy_seeds_.begin() + row * actions,
                   [&](double z) { return -z / count; });
    const double error = targets_[i] - taken_q_[i];
    q_seeds_[static_cast<size_t>(row * actions + batch.taken()[i])] = -rules_.critic * error / count;

    found.add(direction_, ratios_[i], targets_[i], error, rules_);
  }
  pass_.backward(network, rules_.statistics, as_tensor(policy_seeds_, actions, type),
                 as_tensor(q_seeds_, actions, type));
  clip_gradients(network, rules_, found);
  return found;
}

void Gradient::find_targets(const Batch& batch) {
  const int64_t actions = batch.actions(), steps = batch.steps();
  const auto rows = static_cast<size_t>(steps) + batch.windows().size();
  values_.resize(rows);
  for (size_t row = 0; row < rows; ++row) {
    const auto policy = row_of(policy_, static_cast<int64_t>(row), actions);
    const auto q = row_of(q_, static_cast<int64_t>(row), actions);
    values_[row] = 0;
    for (size_t a = 0; a < policy.size(); ++a) values_[row] += policy[a] * q[a];
  }
  ratios_.resize(static_cast<size_t>(steps));
  taken_q_.resize(static_cast<size_t>(steps));
  targets_.resize(static_cast<size_t>(steps));
  for (int64_t row = 0; row < steps; ++row) {
    const auto one = sample(batch, row);
    const auto taken = static_cast<size_t>(one.action);
    ratios_[static_cast<size_t>(row)] = one.ratio(taken);
    taken_q_[static_cast<size_t>(row)] = one.q[taken];
  }
  const std::vector<double> ones(rules_.defect == Defect::NoRetrace ? ratios_.size() : 0, 1.0);
  const auto& traces = rules_.defect == Defect::NoRetrace ? ones : ratios_;
  for (size_t w = 0; w < batch.windows().size(); ++w) {
    const auto part = [&, &window = batch.windows()[w]](auto& rows) {
      return std::span(rows).subspan(static_cast<size_t>(window.begin), static_cast<size_t>(window.length));
    };
    const double after = worth_ahead(batch, w, values_, rules_.defect);
    retrace({part(batch.rewards()), part(taken_q_), part(values_), part(traces), after}, rules_.discount,
            part(targets_));
  }
  spoil_baselines(batch, rules_.defect, values_);
}

Sample Gradient::sample(const Batch& batch, int64_t row) const {
  const auto i = static_cast<size_t>(row);
  const int64_t actions = batch.actions();
  return {row_of(policy_, row, actions),
          batch.behaviour(row),
          row_of(average_, row, actions),
          row_of(q_, row, actions),
          batch.taken()[i],
          values_[i],
          targets_[i]};
}

}  // namespace farad::acer
