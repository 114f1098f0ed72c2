#include "acer/audit_slope.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "acer/audit_batch.h"
#include "acer/duelling_gradient.h"
#include "acer/gaussian.h"
#include "acer/gradient.h"
#include "acer/plain_network.h"

namespace farad::acer {
namespace {

using Numbers = std::vector<double>;

template <class Net>
Net in_double(const NetworkShape& shape, const std::vector<farad::detail::NamedTensor>& values) {
  Net network(shape, Random(0));
  network->to(at::kDouble);
  const c10::NoGradGuard no_grad;
  const auto parameters = network->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(values[i].tensor);
  return network;
}

template <class Net, class By>
Numbers flat_gradient(Net& network, const Net& average, const Batch& batch, By& by) {
  by.compute(*network, *average, batch);
  Numbers all;
  for (const auto& parameter : network->parameters()) {
    const auto* values = parameter.grad().template data_ptr<double>();
    all.insert(all.end(), values, values + parameter.numel());
  }
  return all;
}

Rules for_parts(const Settings& settings) {
  auto rules = settings.rules;
  rules.largest_gradient = 0;
  rules.trust_region = false;  // So that the parts add up.
  return rules;
}

/// The part of the critic and of the entropy: what is left without the policy's. `by` is left as of the whole.
template <class By, class Net>
Numbers rest_of_gradient(Net& network, const Net& average, const Batch& batch, const Rules& rules, By& by) {
  auto of_policy = rules;
  of_policy.critic = of_policy.entropy = 0;
  By policy(of_policy);
  auto part = flat_gradient(network, average, batch, by);
  const auto without = flat_gradient(network, average, batch, policy);
  for (size_t i = 0; i < part.size(); ++i) part[i] -= without[i];
  return part;
}

template <class Net, class Loss>
double worst_difference(Net& network, const Numbers& part, uint64_t seed, Loss loss) {
  double largest = 0;
  for (const double x : part) largest = audit::worse(largest, std::abs(x));
  const double scale = largest == 0 ? 1 : largest;
  const auto parameters = network->parameters();
  Random random(seed);
  double worst = 0;
  for (int i = 0; i < 50; ++i) {
    int64_t place = random.below(static_cast<int64_t>(part.size()));
    const double computed = part[static_cast<size_t>(place)];
    size_t which = 0;
    while (place >= parameters[which].numel()) place -= parameters[which++].numel();
    double& value = parameters[which].template data_ptr<double>()[place];
    const double was = value, step = 1e-5;
    const auto moved = [&](double by) {
      value = was + by;
      return loss();
    };
    const double slope = (moved(step) - moved(-step)) / (2 * step);
    value = was;
    worst = audit::worse(worst, std::abs(computed - slope) / scale);
  }
  return worst;
}

std::span<const float> seen_at(const Batch& batch, int64_t row) {
  const auto width = static_cast<size_t>(batch.observation_size());
  return {batch.observations().data() + static_cast<size_t>(row) * width, width};
}

/// What critic and entropy are to make less.
double loss_of_choices(const Network& network, const Batch& batch, const Numbers& targets, const Rules& rules) {
  PlainNetwork<double> plain(network->shape());
  plain.copy(*network);
  double sum = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    plain.forward(seen_at(batch, static_cast<int64_t>(i)));
    const double error = targets[i] - plain.q()[static_cast<size_t>(batch.taken()[i])];
    sum += rules.critic * 0.5 * error * error;
    for (const double p : plain.policy()) sum += rules.entropy * p * std::log(p);
  }
  return sum / static_cast<double>(targets.size());
}

/// One step whose action is amounts, with all that is constant where its loss is looked at.
struct Step {
  Numbers taken;
  std::vector<Numbers> drawn;  ///< what A is averaged over
  double target = 0, target_of_value = 0;
};

/// Q of the action taken, where the network has just been.
double q_of(PlainDuellingNetwork<double>& network, const Step& step) {
  double others = 0;
  for (const auto& action : step.drawn) others += network.advantage(action) / static_cast<double>(step.drawn.size());
  return network.value() + network.advantage(step.taken) - others;
}

std::vector<Step> steps_of(const DuellingNetwork& network, const Batch& batch, const Numbers& targets,
                           const Rules& rules) {
  PlainDuellingNetwork<double> plain(network->shape());
  plain.copy(*network);
  std::vector<Step> steps;
  for (int64_t row = 0; row < batch.steps(); ++row) {
    plain.forward(seen_at(batch, row));
    const auto taken = batch.taken_amounts(row), noise = batch.noise(row);
    auto& step = steps.emplace_back(Step{{taken.begin(), taken.end()}, {}, targets[static_cast<size_t>(row)]});
    const auto count = static_cast<size_t>(rules.advantage_samples);
    for (size_t one = 0; one < count; ++one) {
      auto& action = step.drawn.emplace_back(plain.mean().begin(), plain.mean().end());
      for (size_t i = 0; i < action.size(); ++i) action[i] += rules.deviation * noise[one * action.size() + i];
    }
    const double ratio = density_ratio(taken, plain.mean(), batch.behaviour(row), rules.deviation);
    step.target_of_value = plain.value() + std::min(1.0, ratio) * (step.target - q_of(plain, step));
  }
  return steps;
}

double loss_of_amounts(const DuellingNetwork& network, const Batch& batch, const std::vector<Step>& steps,
                       const Rules& rules) {
  PlainDuellingNetwork<double> plain(network->shape());
  plain.copy(*network);
  double sum = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    plain.forward(seen_at(batch, static_cast<int64_t>(i)));
    const double error = steps[i].target - q_of(plain, steps[i]);
    const double error_of_value = steps[i].target_of_value - plain.value();
    sum += rules.critic * 0.5 * (error * error + error_of_value * error_of_value);
  }
  return sum / static_cast<double>(steps.size());
}

}  // namespace

double worst_slope(const audit::Learner& learner, const Settings& settings, uint64_t seed) {
  const auto batch = from_tensors(learner.batch(0, 1));
  const NetworkShape shape{batch.observation_size(), settings.hidden, batch.actions()};
  auto network = in_double<Network>(shape, learner.tensors);
  const auto average = in_double<Network>(shape, learner.average);
  const auto rules = for_parts(settings);
  Gradient whole(rules);
  const auto part = rest_of_gradient<Gradient>(network, average, batch, rules, whole);
  return worst_difference(network, part, seed, [&] { return loss_of_choices(network, batch, whole.targets(), rules); });
}

double worst_slope_of_amounts(const audit::Learner& learner, const Settings& settings, uint64_t seed) {
  const auto batch = from_tensors(learner.batch(0, 1));
  const NetworkShape shape{batch.observation_size(), settings.hidden, 0, batch.amounts()};
  auto network = in_double<DuellingNetwork>(shape, learner.tensors);
  const auto average = in_double<DuellingNetwork>(shape, learner.average);
  const auto rules = for_parts(settings);
  DuellingGradient whole(rules);
  const auto part = rest_of_gradient<DuellingGradient>(network, average, batch, rules, whole);
  const auto steps = steps_of(network, batch, whole.targets(), rules);
  return worst_difference(network, part, seed, [&] { return loss_of_amounts(network, batch, steps, rules); });
}

}  // namespace farad::acer
