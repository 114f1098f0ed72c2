#include "acer/duelling_gradient.h"

#include <c10/core/GradMode.h>
#include <farad/error.h>

#include <algorithm>
#include <cmath>

#include "acer/ahead.h"
#include "acer/gaussian.h"
#include "acer/retrace.h"
#include "acer/rows.h"

namespace farad::acer {

Findings DuellingGradient::compute(DuellingNetworkImpl& network, const DuellingNetworkImpl& average,
                                   const Batch& batch) {
  const int64_t steps = batch.steps(), amounts = batch.amounts(), samples = rules_.advantage_samples;
  const int64_t looked_at = samples + 2;
  const auto type = network.value_head().weight.scalar_type();
  const auto observations = as_tensor(batch.observations(), batch.observation_size(), type);
  const auto output = network.forward(observations);
  for (auto* rows : {&means_, &averages_, &values_, &advantages_}) rows->clear();
  append(output.mean, means_);
  append(output.value, values_);
  {
    const c10::NoGradGuard no_grad;
    append(network.forward(as_tensor(batch.afters(), batch.observation_size(), type)).value, values_);
    append(average.forward(observations).mean, averages_);
  }
  choose_actions(batch);
  const auto advantages =
      network.advantages(output.top, as_tensor(actions_, looked_at * amounts, type).view({steps, looked_at, amounts}));
  append(advantages, advantages_);
  find_targets(batch);

  Findings found;
  const auto count = static_cast<double>(steps);
  const auto rules = rules_for_directions(rules_, count);
  std::vector<double> mean_seeds(static_cast<size_t>(steps * amounts)), value_seeds(static_cast<size_t>(steps));
  std::vector<double> advantage_seeds(static_cast<size_t>(steps * looked_at));
  for (int64_t row = 0; row < steps; ++row) {
    const auto i = static_cast<size_t>(row);
    const auto actions = row_of(actions_, row, looked_at * amounts);
    const auto width = static_cast<size_t>(amounts);
    find_direction(GaussianSample{row_of(means_, row, amounts), batch.behaviour(row), row_of(averages_, row, amounts),
                                  actions.first(width), actions.last(width), policy_targets_[i] - values_[i],
                                  other_q_[i] - values_[i]},
                   rules, direction_);
    // Backward passes go downhill, z goes uphill.
    std::transform(direction_.allowed.begin(), direction_.allowed.end(), mean_seeds.begin() + row * amounts,
                   [&](double z) { return -z / count; });
    const double error = targets_[i] - q_[i], seed = -rules_.critic * error / count;
    value_seeds[i] = seed * (1 + std::min(1.0, ratios_[i]));
    const auto of_advantages = advantage_seeds.begin() + row * looked_at;
    of_advantages[0] = seed;
    std::fill_n(of_advantages + 1, samples, -seed / static_cast<double>(samples));
    found.add(direction_, ratios_[i], targets_[i], error, rules_);
  }
  backward(network, {output.mean, output.value, advantages},
           {as_tensor(mean_seeds, amounts, type), as_tensor(value_seeds, 1, type).squeeze(1),
            as_tensor(advantage_seeds, looked_at, type)},
           rules_, found);
  return found;
}

void DuellingGradient::choose_actions(const Batch& batch) {
  const auto drawn = static_cast<size_t>(actions_drawn(rules_) * batch.amounts());
  actions_.clear();
  for (int64_t row = 0; row < batch.steps(); ++row) {
    const auto taken = batch.taken_amounts(row), noise = batch.noise(row), mean = row_of(means_, row, batch.amounts());
    TORCH_CHECK(noise.size() == drawn, "[acer] a batch has noise for ", noise.size(), " amounts a step, not ", drawn);
    actions_.insert(actions_.end(), taken.begin(), taken.end());
    for (size_t i = 0; i < noise.size(); ++i) actions_.push_back(mean[i % mean.size()] + rules_.deviation * noise[i]);
  }
}

void DuellingGradient::find_targets(const Batch& batch) {
  const int64_t steps = batch.steps(), samples = rules_.advantage_samples;
  for (auto* row : {&ratios_, &roots_, &q_, &other_q_, &targets_, &policy_targets_})
    row->resize(static_cast<size_t>(steps));
  ones_.assign(static_cast<size_t>(steps), 1.0);
  for (int64_t row = 0; row < steps; ++row) {
    const auto i = static_cast<size_t>(row);
    const auto advantages = row_of(advantages_, row, samples + 2);
    double mean = 0;
    for (const double one : advantages.subspan(1, static_cast<size_t>(samples)))
      mean += one / static_cast<double>(samples);
    q_[i] = values_[i] + advantages.front() - mean;
    other_q_[i] = values_[i] + advantages.back() - mean;
    ratios_[i] = density_ratio(batch.taken_amounts(row), row_of(means_, row, batch.amounts()), batch.behaviour(row),
                               rules_.deviation);
    roots_[i] = std::pow(ratios_[i], 1.0 / static_cast<double>(batch.amounts()));
  }
  for (size_t w = 0; w < batch.windows().size(); ++w) {
    const auto part = [&, &window = batch.windows()[w]](auto& rows) {
      return std::span(rows).subspan(static_cast<size_t>(window.begin), static_cast<size_t>(window.length));
    };
    const double after = worth_ahead(batch, w, values_, rules_.defect);
    auto& traces = rules_.defect == Defect::NoRetrace ? ones_ : roots_;
    retrace({part(batch.rewards()), part(q_), part(values_), part(traces), after}, rules_.discount, part(targets_));
    retrace({part(batch.rewards()), part(q_), part(values_), part(ones_), after}, rules_.discount,
            part(policy_targets_));
  }
  spoil_baselines(batch, rules_.defect, values_);
}

}  // namespace farad::acer
