#include "acer/findings.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

namespace farad::acer {
namespace {

/// As several sums, to which the processor can add at once; to one it adds a number after the other.
template <class Value>
double sum_of_squares(const Value* values, int64_t count) {
  constexpr int64_t lanes = 8;
  double sums[lanes] = {};
  int64_t i = 0;
  const auto add = [&](int64_t lane) {
    const auto value = static_cast<double>(values[i + lane]);
    sums[lane] += value * value;
  };
  for (; i + lanes <= count; i += lanes) {
    for (int64_t lane = 0; lane < lanes; ++lane) add(lane);
  }
  for (int64_t lane = 0; i + lane < count; ++lane) add(lane);
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum;
}

}  // namespace

double clip_gradients(const Module& module, double largest) {
  double squares = 0;
  const auto each = [&](const auto& visit) {
    for (const auto& parameter : module.parameters()) {
      const auto& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (gradient.scalar_type() == at::kDouble) {
        visit(gradient.data_ptr<double>(), gradient.numel());
      } else {
        visit(gradient.data_ptr<float>(), gradient.numel());
      }
    }
  };
  each([&](const auto* values, int64_t count) { squares += sum_of_squares(values, count); });
  const double norm = std::sqrt(squares);
  if (largest <= 0 || norm <= largest) return norm;
  each([&](auto* values, int64_t count) {
    using Value = std::remove_pointer_t<decltype(values)>;
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<Value>(static_cast<double>(values[i]) * largest / norm);
  });
  return norm;
}

void Findings::add(const Direction& direction, double ratio_of_step, double target_of_step, double error_of_step,
                   const Rules& rules) {
  ++steps;
  policy_loss -= direction.policy_term;
  correction_loss -= direction.correction_term;
  critic_loss += 0.5 * error_of_step * error_of_step;
  entropy += direction.entropy;
  divergence += direction.divergence;
  bounded += direction.bounded;
  effect += direction.effect;
  ratio += ratio_of_step;
  largest_ratio = std::max(largest_ratio, ratio_of_step);
  ratio_above_1 += ratio_of_step > 1;
  ratio_above_c += ratio_of_step > rules.truncation;
  target += target_of_step;
  target_squared += target_of_step * target_of_step;
  error += error_of_step;
  error_squared += error_of_step * error_of_step;
}

void clip_gradients(const Module& module, const Rules& rules, Findings& found) {
  const double most = rules.largest_gradient;
  found.gradient_norm = clip_gradients(module, most);
  found.clipped_norm = most > 0 ? std::min(found.gradient_norm, most) : found.gradient_norm;
}

void backward(Module& module, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
              const Rules& rules, Findings& found) {
  for (const auto& parameter : module.parameters()) parameter.mutable_grad() = at::Tensor();
  torch::autograd::backward(outputs, gradients);
  clip_gradients(module, rules, found);
}

}  // namespace farad::acer
