#include "acer/audit_slope.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "acer/audit_batch.h"
#include "acer/gradient.h"
#include "acer/plain_network.h"

namespace farad::acer {
namespace {

std::vector<double> flat_gradient(NetworkImpl& network, const NetworkImpl& average, const Batch& batch,
                                  Gradient& gradient) {
  gradient.compute(network, average, batch);
  std::vector<double> all;
  for (const auto& parameter : network.parameters()) {
    const auto* values = parameter.grad().data_ptr<double>();
    all.insert(all.end(), values, values + parameter.numel());
  }
  return all;
}

/// What critic and entropy are to make less.
double loss(const NetworkImpl& network, const Batch& batch, const std::vector<double>& targets, const Rules& rules) {
  PlainNetwork<double> plain(network.shape());
  plain.copy(network);
  const auto width = static_cast<size_t>(batch.observation_size());
  double sum = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    plain.forward({batch.observations().data() + i * width, width});
    const double error = targets[i] - plain.q()[static_cast<size_t>(batch.taken()[i])];
    sum += rules.critic * 0.5 * error * error;
    for (const double p : plain.policy()) sum += rules.entropy * p * std::log(p);
  }
  return sum / static_cast<double>(targets.size());
}

}  // namespace

double worst_slope(const audit::Learner& learner, const Settings& settings, uint64_t seed) {
  const auto tensors = learner.batch(0, 1);
  const auto batch = from_tensors(tensors);
  const NetworkShape shape{batch.observation_size(), settings.hidden, batch.actions()};
  Network network(shape, Random(0)), average(shape, Random(0));
  network->to(at::kDouble);
  average->to(at::kDouble);
  const auto parameters = network->parameters();
  {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].copy_(learner.tensors[i].tensor);
      average->parameters()[i].copy_(learner.average[i].tensor);
    }
  }
  auto rules = settings.rules;
  rules.largest_gradient = 0;
  rules.trust_region = false;  // So that the parts add up.
  Gradient whole(rules);
  auto part = flat_gradient(*network, *average, batch, whole);
  auto rest = rules;
  rest.critic = rest.entropy = 0;
  Gradient of_policy(rest);
  const auto policy = flat_gradient(*network, *average, batch, of_policy);
  double largest = 0;
  for (size_t i = 0; i < part.size(); ++i) largest = std::max(largest, std::abs(part[i] -= policy[i]));

  Random random(seed);
  double worst = 0;
  for (int i = 0; i < 50; ++i) {
    int64_t place = random.below(static_cast<int64_t>(part.size()));
    const double computed = part[static_cast<size_t>(place)];
    size_t which = 0;
    while (place >= parameters[which].numel()) place -= parameters[which++].numel();
    double& value = parameters[which].data_ptr<double>()[place];
    const double was = value, step = 1e-5;
    const auto moved = [&](double by) {
      value = was + by;
      return loss(*network, batch, whole.targets(), rules);
    };
    const double slope = (moved(step) - moved(-step)) / (2 * step);
    value = was;
    worst = std::max(worst, std::abs(computed - slope) / largest);
  }
  return worst;
}

}  // namespace farad::acer
