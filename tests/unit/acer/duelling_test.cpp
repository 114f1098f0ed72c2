#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <numbers>

#include "acer/duelling_gradient.h"
#include "acer/duelling_reference.h"
#include "acer/gaussian.h"
#include "acer/plain_network.h"

namespace farad::acer {
namespace {

constexpr int64_t observed = 5, amounts = 2;

/// How far the means that acted are from those of now, in deviations.
enum class Distance { None, Near, Far };

struct AmountsCase {
  AmountsCase(Distance distance, uint64_t seed, at::ScalarType type = at::kDouble)
      : network(shape, Random(seed, 1)), average(shape, Random(seed, 2)), batch(observed, 0, amounts) {
    rules.trust = 0.3;
    rules.truncation = 5;
    rules.largest_gradient = 0;
    network->to(type);
    average->to(type);
    const c10::NoGradGuard no_grad;
    for (auto& value : network->parameters()) value.mul_(3);
    for (auto& value : average->parameters()) value.mul_(3);
    Random random(seed, 3);
    PlainDuellingNetwork<double> plain(shape);
    plain.copy(*network);
    const auto seen = [&] {
      std::vector<float> values(observed);
      for (float& x : values) x = static_cast<float>(random.normal());
      return values;
    };
    for (const int64_t length : {7, 1, 4, 1, 12}) {
      for (int64_t i = 0; i < length; ++i) {
        const auto here = seen();
        plain.forward(here);
        std::vector<float> behaviour(plain.mean().begin(), plain.mean().end());
        std::vector<double> action;
        for (float& mean : behaviour) {
          if (distance == Distance::Near) mean += static_cast<float>(rules.deviation * random.uniform(-0.5, 0.5));
          if (distance == Distance::Far) mean += static_cast<float>(rules.deviation * random.uniform(-3, 3));
          action.push_back(static_cast<double>(mean) + rules.deviation * random.normal());
        }
        batch.add_step(here, {0, action}, random.normal(), behaviour);
      }
      batch.end_window(length % 2 == 0 ? Ending::Terminated : Ending::Cut, seen());
    }
    batch.draw_noise(DuellingGradient::actions_drawn(rules), random);
  }

  at::Tensor gradient(DuellingGradient& by) {
    found = by.compute(*network, *average, batch);
    return flat();
  }
  at::Tensor gradient() {
    DuellingGradient by(rules);
    return gradient(by);
  }
  at::Tensor flat() const {
    std::vector<at::Tensor> parts;
    for (const auto& parameter : network->parameters()) parts.push_back(parameter.grad().flatten());
    return at::cat(parts).to(at::kDouble);
  }
  at::Tensor by_reference() const {
    std::vector<double> all;
    for (const auto& part : reference_gradient(*network, *average, batch, rules))
      all.insert(all.end(), part.begin(), part.end());
    return at::tensor(all);
  }
  at::Tensor states() const {
    return at::tensor(at::ArrayRef<float>(batch.observations())).view({batch.steps(), observed}).to(at::kDouble);
  }
  /// Of each step's rows, as a tensor.
  template <class Row>
  at::Tensor rows(Row row) const {
    std::vector<double> all;
    for (int64_t i = 0; i < batch.steps(); ++i) all.insert(all.end(), row(i).begin(), row(i).end());
    return at::tensor(all).view({batch.steps(), -1});
  }
  at::Tensor taken() const {
    return rows([&](int64_t i) { return batch.taken_amounts(i); });
  }
  at::Tensor behaviour() const {
    return rows([&](int64_t i) { return batch.behaviour(i); });
  }
  /// Actions around means, steps x count x amounts.
  at::Tensor drawn(const at::Tensor& mean) const {
    const auto noise = rows([&](int64_t i) { return batch.noise(i); }).view({batch.steps(), -1, amounts});
    return mean.detach().unsqueeze(1) + rules.deviation * noise;
  }

  const NetworkShape shape{observed, {8, 7}, 0, amounts};
  DuellingNetwork network, average;
  Batch batch;
  Rules rules;
  Findings found;
};

double relative_to(const at::Tensor& b, const at::Tensor& a) { return ((a - b).norm() / b.norm()).item<double>(); }

at::Tensor log_density(const at::Tensor& action, const at::Tensor& mean, double deviation) {
  return -((action - mean) / deviation).pow(2).sum(-1) / 2;  // but for a constant
}

/// What the critic is to have least of, for constant targets, each step: Q's error and, as V's target is
/// V + min(1, ratio) (target - Q), that of V.
struct CriticLoss {
  at::Tensor targets, value_targets, actions;  // those taken, then those drawn
  double weight;

  at::Tensor operator()(const DuellingNetworkImpl& network, const at::Tensor& states) const {
    const auto output = network.forward(states);
    const auto advantages = network.advantages(output.top, actions);
    const auto q = output.value + advantages.select(1, 0) - advantages.narrow(1, 1, advantages.size(1) - 2).mean(1);
    return weight * 0.5 * ((targets - q).pow(2) + (value_targets - output.value).pow(2)).mean();
  }
};

CriticLoss critic_loss(AmountsCase& one, const std::vector<double>& targets) {
  const c10::NoGradGuard no_grad;
  const auto output = one.network->forward(one.states());
  CriticLoss loss{
      at::tensor(targets), {}, at::cat({one.taken().unsqueeze(1), one.drawn(output.mean)}, 1), one.rules.critic};
  const auto advantages = one.network->advantages(output.top, loss.actions);
  const auto q = output.value + advantages.select(1, 0) - advantages.narrow(1, 1, advantages.size(1) - 2).mean(1);
  const auto ratio = (log_density(one.taken(), output.mean, one.rules.deviation) -
                      log_density(one.taken(), one.behaviour(), one.rules.deviation))
                         .exp();
  loss.value_targets = output.value + ratio.clamp_max(1) * (loss.targets - q);
  return loss;
}

/// The gradient as the paper says it, every derivative by libtorch.
at::Tensor by_libtorch(AmountsCase& one, const DuellingGradient& computed) {
  const double deviation = one.rules.deviation, c = one.rules.truncation;
  const auto output = one.network->forward(one.states());
  const auto mean = output.mean, taken = one.taken(), mu = one.behaviour();
  const auto drawn = one.drawn(mean), another = drawn.select(1, drawn.size(1) - 1);
  const auto advantages = one.network->advantages(output.top, drawn).detach();
  const auto better = advantages.select(1, drawn.size(1) - 1) - advantages.narrow(1, 0, drawn.size(1) - 1).mean(1);
  const auto ratio = [&](const at::Tensor& action) {
    return (log_density(action, mean, deviation) - log_density(action, mu, deviation)).exp().detach();
  };
  const auto advantage = at::tensor(computed.policy_targets()) - output.value.detach();
  const auto wanted = (ratio(taken).clamp_max(c) * advantage * log_density(taken, mean, deviation) +
                       (1 - c / ratio(another)).clamp_min(0) * better * log_density(another, mean, deviation))
                          .sum();
  const auto divergence = -log_density(one.average->forward(one.states()).mean.detach(), mean, deviation).sum();
  const auto g = torch::autograd::grad({wanted}, {mean}, {}, true)[0];
  const auto k = torch::autograd::grad({divergence}, {mean}, {}, true)[0];
  const auto z = g - (((k * g).sum(1, true) - one.rules.trust) / (k * k).sum(1, true)).clamp_min(0) * k;
  const auto critic = critic_loss(one, computed.targets())(*one.network, one.states());
  for (auto& parameter : one.network->parameters()) parameter.mutable_grad() = at::Tensor();
  torch::autograd::backward({mean, critic}, {-z / static_cast<double>(one.batch.steps()), at::Tensor()});
  return one.flat();
}

class AtDistance : public testing::TestWithParam<Distance> {};

TEST_P(AtDistance, ClosedFormsAreWhatAutogradComputes) {
  AmountsCase one(GetParam(), 41);
  DuellingGradient by(one.rules);
  const auto gradient = one.gradient(by);
  EXPECT_LT(relative_to(by_libtorch(one, by), gradient), 1e-12);
}

TEST_P(AtDistance, TheReferenceAgrees) {
  AmountsCase one(GetParam(), 42);
  EXPECT_LT(relative_to(one.by_reference(), one.gradient()), 1e-10);
  AmountsCase single(GetParam(), 42, at::kFloat);
  EXPECT_LT(relative_to(single.by_reference(), single.gradient()), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(DuellingGradient, AtDistance, testing::Values(Distance::None, Distance::Near, Distance::Far));

TEST(DuellingGradient, DistancesAreWhatTheyAreCalled) {
  AmountsCase on(Distance::None, 41), far(Distance::Far, 41);
  on.gradient();
  EXPECT_NEAR(on.found.ratio / on.found.steps, 1, 1e-6);
  EXPECT_EQ(on.found.correction_loss, 0);
  far.gradient();
  EXPECT_GT(far.found.ratio_above_1, 0);
  EXPECT_NE(far.found.correction_loss, 0);
  EXPECT_GT(far.found.bounded, 2);
}

TEST(DuellingGradient, OfTheCriticAgreesWithFiniteDifferences) {
  AmountsCase one(Distance::Far, 43);
  DuellingGradient by(one.rules);
  auto gradient = one.gradient(by);
  const auto targets = by.targets();
  auto rest = one.rules;
  rest.critic = 0;
  DuellingGradient of_policy(rest);
  gradient = gradient - one.gradient(of_policy);

  const auto loss = critic_loss(one, targets);
  const c10::NoGradGuard no_grad;
  const auto states = one.states();
  Random random(4);
  const auto parameters = one.network->parameters();
  const double scale = gradient.abs().max().item<double>();
  for (int i = 0; i < 50; ++i) {
    int64_t place = random.below(gradient.numel());
    const double computed = gradient[place].item<double>();
    size_t which = 0;
    while (place >= parameters[which].numel()) place -= parameters[which++].numel();
    double& value = parameters[which].data_ptr<double>()[place];
    const double was = value, step = 1e-5;
    value = was + step;
    const double above = loss(*one.network, states).item<double>();
    value = was - step;
    const double below = loss(*one.network, states).item<double>();
    value = was;
    EXPECT_NEAR(computed, (above - below) / (2 * step), 1e-6 * scale);
  }
}

TEST(DuellingGradient, ReachesEveryParameterAndLeavesNothingOfTheOneBefore) {
  AmountsCase one(Distance::Far, 44);
  const auto gradient = one.gradient();
  for (const auto& parameter : one.network->parameters()) EXPECT_GT(parameter.grad().norm().item<double>(), 0);
  for (const auto& parameter : one.average->parameters()) EXPECT_FALSE(parameter.grad().defined());
  for (auto& parameter : one.network->parameters()) parameter.mutable_grad().fill_(std::nan(""));
  EXPECT_TRUE(one.gradient().equal(gradient));
}

TEST(DuellingGradient, TracesAreRootsForTheCriticAndOnesForThePolicy) {
  const NetworkShape shape{1, {}, 0, amounts};
  DuellingNetwork network(shape, Random(1));
  network->to(at::kDouble);
  {
    const c10::NoGradGuard no_grad;
    for (auto& parameter : network->parameters()) parameter.zero_();
    network->value_head().bias.fill_(4);  // Every state and every action is worth 4, and means are 0.
  }
  Rules rules;
  rules.discount = 0.5;
  rules.deviation = 1;
  Batch batch(1, 0, amounts);
  const float seen = 1;
  const std::vector<double> still{0, 0}, one_aside{1, 0};
  const std::vector<float> around_zero{0, 0}, around_aside{1, 0};
  for (const auto ending : {Ending::Cut, Ending::Terminated}) {
    batch.add_step({&seen, 1}, {0, still}, 1, around_zero);
    batch.add_step({&seen, 1}, {0, one_aside}, 8, around_aside);  // less likely now, by a factor of exp(-1/2)
    batch.end_window(ending, {&seen, 1});
  }
  Random random(1);
  batch.draw_noise(DuellingGradient::actions_drawn(rules), random);
  DuellingGradient gradient(rules);
  gradient.compute(*network, *network, batch);
  const double root = std::exp(-0.25);
  const std::vector<double> targets{1 + 0.5 * (root * (10 - 4) + 4), 10, 1 + 0.5 * (root * (8 - 4) + 4), 8};
  const std::vector<double> policy_targets{1 + 0.5 * 10, 10, 1 + 0.5 * 8, 8};
  for (size_t i = 0; i < targets.size(); ++i) {
    EXPECT_NEAR(gradient.targets()[i], targets[i], 1e-12) << i;
    EXPECT_NEAR(gradient.policy_targets()[i], policy_targets[i], 1e-12) << i;
  }
}

TEST(DuellingGradient, DirectionsObeyTheBoundAndChangeNoMoreThanItDemands) {
  int bounded = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto numbers = [&](double scale) {
      return std::vector<double>{scale * random.normal(), scale * random.normal(), scale * random.normal()};
    };
    Rules rules;
    rules.trust = random.uniform(0.01, 2);
    const auto mean = numbers(1), behaviour = numbers(1), average = numbers(1), action = numbers(1), other = numbers(1);
    Direction direction;
    find_direction(GaussianSample{mean, behaviour, average, action, other, random.normal(), random.normal()}, rules,
                   direction);
    const auto& [g, k, z] = std::tie(direction.wanted, direction.away, direction.allowed);
    double kz = 0, kk = 0, moved = 0;
    for (size_t i = 0; i < 3; ++i) kz += k[i] * z[i], kk += k[i] * k[i], moved += k[i] * (g[i] - z[i]);
    const double scale = std::max(1.0, std::abs(moved));
    ASSERT_LE(kz, rules.trust + 1e-9 * scale);
    if (g == z) continue;
    ++bounded;
    ASSERT_NEAR(kz, rules.trust, 1e-9 * scale);
    for (size_t i = 0; i < 3; ++i) ASSERT_NEAR(g[i] - z[i], moved / kk * k[i], 1e-9 * std::max(1.0, std::abs(g[i])));
  }
  EXPECT_GT(bounded, 200);
}

TEST(PlainDuellingNetwork, ComputesWhatTheNetworkDoes) {
  const NetworkShape shape{6, {64, 64}, 0, 3};
  DuellingNetwork network(shape, Random(31));
  PlainDuellingNetwork<float> plain(shape);
  plain.copy(*network);
  Random random(32);
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < 100; ++i) {
    std::vector<float> seen(6);
    for (float& x : seen) x = static_cast<float>(random.normal());
    const std::vector<double> action{random.normal(), random.normal(), random.normal()};
    plain.forward(seen);
    const auto output = network->forward(at::tensor(at::ArrayRef<float>(seen)).unsqueeze(0));
    for (size_t a = 0; a < 3; ++a)
      EXPECT_NEAR(plain.mean()[a], output.mean[0][static_cast<int64_t>(a)].item<float>(), 1e-6);
    EXPECT_NEAR(plain.value(), output.value[0].item<float>(), 1e-6);
    const auto advantage = network->advantages(output.top, at::tensor(action).to(at::kFloat).view({1, 1, 3}));
    EXPECT_NEAR(plain.advantage(action), advantage[0][0].item<float>(), 1e-6);
  }
}

}  // namespace
}  // namespace farad::acer
