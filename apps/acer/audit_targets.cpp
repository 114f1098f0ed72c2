#include "acer/audit_targets.h"

#include <c10/core/GradMode.h>
#include <farad/audit.h>

#include <cmath>
#include <limits>

#include "acer/batch.h"
#include "acer/duelling_gradient.h"
#include "acer/gradient.h"

namespace farad::acer {

double largest_gap(const std::vector<double>& values, const std::vector<double>& wanted) {
  if (values.size() != wanted.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < wanted.size(); ++i) worst = audit::worse(worst, std::abs(values[i] - wanted[i]));
  return worst;
}

double worst_target(const Rules& rules) {
  const NetworkShape shape{1, {}, 2};
  Network network(shape, Random(1));
  network->to(at::kDouble);
  {
    const c10::NoGradGuard no_grad;
    for (auto& parameter : network->parameters()) parameter.zero_();
    network->q_head().weight[0].fill_(2);
    network->q_head().weight[1].fill_(6);
  }
  Batch batch(1, 2);
  const float seen = 1, after = 0.5;
  const std::vector<float> rare{0.25f, 0.75f}, often{0.75f, 0.25f};
  const auto step = [&](int64_t action, double reward, const std::vector<float>& behaviour) {
    batch.add_step({&seen, 1}, {action}, reward, behaviour);
  };
  step(0, 3, rare);
  batch.end_window(Ending::Terminated, {&after, 1});
  step(0, 3, rare);
  batch.end_window(Ending::Cut, {&after, 1});
  step(1, 1, rare);
  step(0, 3, rare);  // twice as likely now: the trace is cut at 1
  batch.end_window(Ending::Terminated, {&after, 1});
  step(1, 1, rare);
  step(0, 3, often);  // two thirds as likely
  batch.end_window(Ending::Cut, {&after, 1});
  Gradient gradient(rules);
  gradient.compute(*network, *network, batch);
  const double d = rules.discount, cut = 3 + d * 2;
  return largest_gap(gradient.targets(), {3, cut, 1 + d * (3 - 2 + 4), 3, 1 + d * (2.0 / 3 * (cut - 2) + 4), cut});
}

double worst_target_of_amounts(const Rules& rules) {
  const NetworkShape shape{1, {}, 0, 2};
  DuellingNetwork network(shape, Random(1));
  network->to(at::kDouble);
  {
    const c10::NoGradGuard no_grad;
    for (auto& parameter : network->parameters()) parameter.zero_();
    network->value_head().weight.fill_(4);
  }
  Batch batch(1, 0, 2);
  const float seen = 1, after = 0.5;
  // Half a deviation from the means, as near to it as behaviours are stored.
  const auto aside = static_cast<float>(rules.deviation / 2);
  const std::vector<double> taken{static_cast<double>(aside), 0};
  for (const auto ending : {Ending::Terminated, Ending::Cut}) {
    batch.add_step({&seen, 1}, {0, taken}, 1, std::vector<float>{0, 0});
    batch.add_step({&seen, 1}, {0, taken}, 8, std::vector<float>{aside, 0});  // it was more likely then
    batch.end_window(ending, {&after, 1});
  }
  Random random(1);
  batch.draw_noise(DuellingGradient::actions_drawn(rules), random);
  DuellingGradient gradient(rules);
  gradient.compute(*network, *network, batch);
  const double deviations = taken[0] / rules.deviation;
  const double root = std::exp(-deviations * deviations / 4);  // of exp(-deviations^2 / 2), for two amounts
  const double d = rules.discount, cut = 8 + d * 2;
  return audit::worse(
      largest_gap(gradient.targets(), {1 + d * (root * (8 - 4) + 4), 8, 1 + d * (root * (cut - 4) + 4), cut}),
      largest_gap(gradient.policy_targets(), {1 + d * 8, 8, 1 + d * cut, cut}));
}

}  // namespace farad::acer
