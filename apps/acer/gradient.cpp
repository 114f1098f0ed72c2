#include "acer/gradient.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "acer/retrace.h"

namespace farad::acer {
namespace {

/// Rows of observations as the network takes them. Lies in `rows` where the network is in f32.
at::Tensor as_tensor(const std::vector<float>& rows, int64_t width, at::ScalarType type) {
  auto* data = const_cast<float*>(rows.data());  // It is only read.
  return at::from_blob(data, {static_cast<int64_t>(rows.size()) / width, width}).to(type);
}

void append(const at::Tensor& tensor, std::vector<double>& to) {
  const auto values = tensor.detach().to(at::kDouble).contiguous();
  to.insert(to.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
}

at::Tensor seeds_of(std::vector<double>& seeds, int64_t width, at::ScalarType type) {
  return at::from_blob(seeds.data(), {static_cast<int64_t>(seeds.size()) / width, width}, at::kDouble).to(type);
}

std::span<const double> row_of(const std::vector<double>& rows, int64_t row, int64_t width) {
  return {rows.data() + row * width, static_cast<size_t>(width)};
}

}  // namespace

Findings Gradient::compute(NetworkImpl& network, const NetworkImpl& average, const Batch& batch) {
  const int64_t actions = batch.actions(), steps = batch.steps();
  const auto type = network.policy_head().weight.scalar_type();
  const auto observations = as_tensor(batch.observations(), batch.observation_size(), type);
  const auto output = network.forward(observations);
  policy_.clear();
  q_.clear();
  average_.clear();
  append(output.policy, policy_);
  append(output.q, q_);
  {
    const c10::NoGradGuard no_grad;
    const auto after = network.forward(as_tensor(batch.afters(), batch.observation_size(), type));
    append(after.policy, policy_);
    append(after.q, q_);
    append(average.forward(observations).policy, average_);
  }
  find_targets(batch);

  Findings found;
  found.steps = static_cast<double>(steps);
  std::vector<double> policy_seeds(static_cast<size_t>(steps * actions));
  std::vector<double> q_seeds(static_cast<size_t>(steps * actions), 0.0);
  for (int64_t row = 0; row < steps; ++row) {
    const auto i = static_cast<size_t>(row);
    find_direction(sample(batch, row), rules_, direction_);
    // Backward passes go downhill, z goes uphill.
    std::transform(direction_.allowed.begin(), direction_.allowed.end(), policy_seeds.begin() + row * actions,
                   [&](double z) { return -z / found.steps; });
    const double error = targets_[i] - taken_q_[i];
    q_seeds[static_cast<size_t>(row * actions + batch.taken()[i])] = -rules_.critic * error / found.steps;

    found.policy_loss -= direction_.policy_term;
    found.correction_loss -= direction_.correction_term;
    found.critic_loss += 0.5 * error * error;
    found.entropy += direction_.entropy;
    found.divergence += direction_.divergence;
    found.bounded += direction_.bounded;
    found.effect += direction_.effect;
    found.ratio += ratios_[i];
    found.largest_ratio = std::max(found.largest_ratio, ratios_[i]);
    found.ratio_above_1 += ratios_[i] > 1;
    found.ratio_above_c += ratios_[i] > rules_.truncation;
    found.target += targets_[i];
    found.target_squared += targets_[i] * targets_[i];
    found.error += error;
    found.error_squared += error * error;
  }

  for (const auto& parameter : network.parameters()) parameter.mutable_grad() = at::Tensor();
  const auto& statistics = rules_.statistics == Statistics::Probabilities ? output.policy : output.logits;
  torch::autograd::backward({statistics, output.q},
                            {seeds_of(policy_seeds, actions, type), seeds_of(q_seeds, actions, type)});
  found.gradient_norm = clip_gradients(network, rules_.largest_gradient);
  found.clipped_norm =
      rules_.largest_gradient > 0 ? std::min(found.gradient_norm, rules_.largest_gradient) : found.gradient_norm;
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
  for (size_t w = 0; w < batch.windows().size(); ++w) {
    const auto& [begin, length, ending] = batch.windows()[w];
    const auto part = [&, begin = begin, length = length](auto& rows) {
      return std::span(rows).subspan(static_cast<size_t>(begin), static_cast<size_t>(length));
    };
    const bool ended = ending == Ending::Terminated && rules_.defect != Defect::DoneAsTruncation;
    const double after = ended ? 0 : values_[static_cast<size_t>(steps) + w];
    retrace({part(batch.rewards()), part(taken_q_), part(values_), part(ratios_), after}, rules_.discount,
            part(targets_));
  }
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

double clip_gradients(const NetworkImpl& network, double largest) {
  double squares = 0;
  const auto each = [&](const auto& visit) {
    for (const auto& parameter : network.parameters()) {
      const auto& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (gradient.scalar_type() == at::kDouble) {
        visit(gradient.data_ptr<double>(), gradient.numel());
      } else {
        visit(gradient.data_ptr<float>(), gradient.numel());
      }
    }
  };
  each([&](const auto* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  });
  const double norm = std::sqrt(squares);
  if (largest <= 0 || norm <= largest) return norm;
  each([&](auto* values, int64_t count) {
    using Value = std::remove_pointer_t<decltype(values)>;
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<Value>(static_cast<double>(values[i]) * largest / norm);
  });
  return norm;
}

}  // namespace farad::acer
