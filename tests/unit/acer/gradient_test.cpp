#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "acer/gradient.h"
#include "acer/plain_network.h"
#include "acer/reference.h"
#include "acer/retrace.h"

namespace farad::acer {
namespace {

using Targets = std::vector<double>;

Targets retraced(const Targets& rewards, const Targets& q, const Targets& values, const Targets& ratios, double after,
                 double discount = 0.5) {
  Targets targets(rewards.size());
  retrace({rewards, q, values, ratios, after}, discount, targets);
  return targets;
}

TEST(Retrace, AgreesWithWhatIsComputedByHand) {
  const Targets rewards{1, 2, 3}, q{10, 20, 30}, values{4, 8, 16}, ratios{0.5, 2, 0.25};
  EXPECT_EQ(retraced(rewards, q, values, ratios, 32), (Targets{-0.6875, 8.625, 19}));  // cut off
  EXPECT_EQ(retraced(rewards, q, values, ratios, 0), (Targets{-1.6875, 6.625, 3}));    // ended
  EXPECT_EQ(retraced({5}, {1}, {2}, {3}, 8), Targets{9});
  EXPECT_EQ(retraced({5}, {1}, {2}, {3}, 0), Targets{5});
}

TEST(Retrace, IsTheReturnOfNStepsOnPolicyAndOneStepWhereTheTraceIsCut) {
  const Targets rewards{1, 2, 3}, values{4, 8, 16};
  EXPECT_EQ(retraced(rewards, values, values, {1, 1, 1}, 32), (Targets{1 + 1 + 0.75 + 4, 2 + 1.5 + 8, 19}));
  EXPECT_EQ(retraced(rewards, {9, 9, 9}, values, {0, 0, 0}, 32), (Targets{1 + 4, 2 + 8, 3 + 16}));
}

TEST(Retrace, TracesAreCutAtOneAndNotAtC) {
  const Targets rewards{1, 2}, q{3, 4}, values{5, 6};
  EXPECT_EQ(retraced(rewards, q, values, {1, 1}, 0), retraced(rewards, q, values, {7, 7}, 0));
}

// --- Batches with everything in them ---

enum class Regime { OnPolicy, Mild, Far };

struct Case {
  Case(Regime regime, uint64_t seed, at::ScalarType type = at::kDouble)
      : network(shape, Random(seed, 1)), average(shape, Random(seed, 2)), batch(5, 4) {
    network->to(type);
    average->to(type);
    const c10::NoGradGuard no_grad;
    // Far from the first values, where policies are almost uniform.
    for (auto& value : network->parameters()) value.mul_(3);
    for (auto& value : average->parameters()) value.mul_(regime == Regime::Far ? 8 : 3);
    Random random(seed, 3);
    PlainNetwork<double> plain(shape);
    plain.copy(*network);
    for (const int64_t length : {7, 1, 4, 1, 12}) {
      const auto observed = [&] {
        std::vector<float> seen(5);
        for (float& x : seen) x = static_cast<float>(random.normal());
        return seen;
      };
      for (int64_t i = 0; i < length; ++i) {
        const auto seen = observed();
        plain.forward(seen);
        std::vector<float> behaviour(plain.policy().begin(), plain.policy().end());
        float sum = 0;
        for (float& mu : behaviour) {
          if (regime == Regime::Mild) mu *= static_cast<float>(std::exp(random.uniform(-1, 1)));
          if (regime == Regime::Far) mu *= static_cast<float>(std::exp(random.uniform(-6, 2)));
          sum += mu;
        }
        for (float& mu : behaviour) mu /= sum;
        batch.add_step(seen, {random.below(4)}, random.normal(), behaviour);
      }
      batch.end_window(length % 2 == 0 ? Ending::Terminated : Ending::Cut, observed());
    }
    rules.trust = 0.3;
    rules.entropy = 0.02;
    rules.largest_gradient = 0;
  }

  at::Tensor gradient(Gradient& by) {
    found = by.compute(*network, *average, batch);
    return flat();
  }
  at::Tensor gradient() {
    Gradient by(rules);
    return gradient(by);
  }
  at::Tensor flat() const {
    std::vector<at::Tensor> parts;
    for (const auto& parameter : network->parameters()) parts.push_back(parameter.grad().flatten());
    return at::cat(parts).to(at::kDouble);
  }

  const NetworkShape shape{5, {8, 7}, 4};
  Network network, average;
  Batch batch;
  Rules rules;
  Findings found;
};

double relative(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

/// The gradient as the paper says it, every derivative by libtorch: the policy's and the divergence's gradients with
/// respect to the statistics, the projection, and a backward pass from there.
at::Tensor by_autograd(Case& one, const Targets& targets) {
  const auto& batch = one.batch;
  const int64_t steps = batch.steps();
  const auto states = at::tensor(at::ArrayRef<float>(batch.observations())).view({steps, -1}).to(at::kDouble);
  const auto output = one.network->forward(states);
  const auto average = one.average->forward(states).policy.detach();
  std::vector<double> mu_values;
  for (int64_t i = 0; i < steps; ++i)
    mu_values.insert(mu_values.end(), batch.behaviour(i).begin(), batch.behaviour(i).end());
  const auto mu = at::tensor(mu_values).view({steps, -1});
  const auto taken = at::tensor(batch.taken()).unsqueeze(1);
  const auto target = at::tensor(targets).unsqueeze(1);

  const bool logits = one.rules.statistics == Statistics::Logits;
  const auto& phi = logits ? output.logits : output.policy;
  const auto p = logits ? at::softmax(phi, 1) : phi;
  const auto ratio = (output.policy / mu).detach();
  const auto value = (output.policy * output.q).sum(1, true).detach();
  const auto weight = ratio.gather(1, taken).clamp_max(one.rules.truncation) * (target - value);
  const auto correction =
      (1 - one.rules.truncation / ratio).clamp_min(0) * output.policy.detach() * (output.q.detach() - value);
  const auto wanted = (weight * p.log().gather(1, taken)).sum() + (correction * p.log()).sum() -
                      one.rules.entropy * (p * p.log()).sum();
  const auto divergence = (average * (average.log() - p.log())).sum();
  const auto g = torch::autograd::grad({wanted}, {phi}, {}, true)[0];
  const auto k = torch::autograd::grad({divergence}, {phi}, {}, true)[0];
  const auto excess = (((k * g).sum(1, true) - one.rules.trust) / (k * k).sum(1, true)).clamp_min(0);
  const auto z = g - excess * k;
  const auto critic = one.rules.critic * 0.5 * (target - output.q.gather(1, taken)).pow(2).mean();
  for (auto& parameter : one.network->parameters()) parameter.mutable_grad() = at::Tensor();
  torch::autograd::backward({phi, critic}, {-z / static_cast<double>(steps), at::Tensor()});
  return one.flat();
}

at::Tensor by_reference(Case& one) {
  std::vector<double> all;
  for (const auto& part : reference_gradient(*one.network, *one.average, one.batch, one.rules))
    all.insert(all.end(), part.begin(), part.end());
  return at::tensor(all);
}

class InRegime : public testing::TestWithParam<std::tuple<Regime, Statistics>> {};

TEST_P(InRegime, ClosedFormsAreWhatAutogradComputes) {
  Case one(std::get<0>(GetParam()), 21);
  one.rules.statistics = std::get<1>(GetParam());
  Gradient by(one.rules);
  const auto gradient = one.gradient(by);
  EXPECT_LT(relative(gradient, by_autograd(one, by.targets())), 1e-12);
}

TEST_P(InRegime, TheReferenceAgrees) {
  Case one(std::get<0>(GetParam()), 22);
  one.rules.statistics = std::get<1>(GetParam());
  EXPECT_LT(relative(one.gradient(), by_reference(one)), 1e-10);
  Case single(std::get<0>(GetParam()), 22, at::kFloat);
  single.rules.statistics = std::get<1>(GetParam());
  EXPECT_LT(relative(single.gradient(), by_reference(single)), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Gradient, InRegime,
                         testing::Combine(testing::Values(Regime::OnPolicy, Regime::Mild, Regime::Far),
                                          testing::Values(Statistics::Probabilities, Statistics::Logits)));

TEST(Gradient, RegimesAreWhatTheyAreCalled) {
  Case on(Regime::OnPolicy, 21), far(Regime::Far, 21);
  on.gradient();
  EXPECT_NEAR(on.found.ratio / on.found.steps, 1, 1e-6);
  EXPECT_EQ(on.found.correction_loss, 0);
  far.gradient();
  EXPECT_GT(far.found.ratio_above_c, 2);
  EXPECT_NE(far.found.correction_loss, 0);
  EXPECT_GT(far.found.bounded, 5);
  EXPECT_GT(far.found.effect, 0);
}

TEST(Gradient, DirectionsObeyTheBoundAndChangeNoMoreThanItDemands) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto distribution = [&] {
      std::vector<double> p(3);
      double sum = 0;
      for (double& x : p) sum += x = std::exp(random.uniform(-6, 0));
      for (double& x : p) x /= sum;
      return p;
    };
    const auto policy = distribution(), behaviour = distribution(), average = distribution();
    const std::vector<double> q{random.normal(), random.normal(), random.normal()};
    Rules rules;
    rules.trust = random.uniform(0.01, 2);
    rules.statistics = seed % 2 ? Statistics::Probabilities : Statistics::Logits;
    const double value = policy[0] * q[0] + policy[1] * q[1] + policy[2] * q[2];
    Direction direction;
    find_direction({policy, behaviour, average, q, random.below(3), value, random.normal()}, rules, direction);
    const auto& [g, k, z] = std::tie(direction.wanted, direction.away, direction.allowed);
    double kz = 0, kk = 0, moved = 0;
    for (size_t a = 0; a < 3; ++a) kz += k[a] * z[a], kk += k[a] * k[a], moved += k[a] * (g[a] - z[a]);
    ASSERT_LE(kz, rules.trust * (1 + 1e-9) + 1e-9 * std::sqrt(kk));
    if (g == z) continue;
    ASSERT_TRUE(direction.bounded);
    const double scale = std::max(1.0, std::abs(moved));
    ASSERT_NEAR(kz, rules.trust, 1e-9 * scale);
    for (size_t a = 0; a < 3; ++a) ASSERT_NEAR(g[a] - z[a], moved / kk * k[a], 1e-9 * std::max(1.0, std::abs(g[a])));
  }
}

TEST(Gradient, CriticAndEntropyAgreeWithFiniteDifferences) {
  Case one(Regime::Mild, 23);
  one.rules.trust_region = false;  // so that the parts add up
  Gradient by(one.rules);
  auto gradient = one.gradient(by);
  const auto targets = by.targets();
  auto rest = one.rules;
  rest.critic = rest.entropy = 0;
  Gradient of_policy(rest);
  gradient = gradient - one.gradient(of_policy);

  const auto states =
      at::tensor(at::ArrayRef<float>(one.batch.observations())).view({one.batch.steps(), -1}).to(at::kDouble);
  const c10::NoGradGuard no_grad;
  const auto loss = [&] {
    const auto output = one.network->forward(states);
    const auto q = output.q.gather(1, at::tensor(one.batch.taken()).unsqueeze(1)).squeeze(1);
    const auto entropy = -(output.policy * output.policy.log()).sum(1);
    return (one.rules.critic * 0.5 * (at::tensor(targets) - q).pow(2) - one.rules.entropy * entropy)
        .mean()
        .item<double>();
  };
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
    const double above = loss();
    value = was - step;
    const double below = loss();
    value = was;
    EXPECT_NEAR(computed, (above - below) / (2 * step), 1e-6 * scale);
  }
}

TEST(Gradient, ConstantsStayConstant) {
  Case one(Regime::Far, 24);
  const auto gradient = one.gradient();
  for (const auto& parameter : one.average->parameters()) EXPECT_FALSE(parameter.grad().defined());
  for (auto& parameter : one.average->parameters()) parameter.set_requires_grad(false);
  EXPECT_TRUE(one.gradient().equal(gradient));
  // Nor is anything left of the gradient of before.
  for (auto& parameter : one.network->parameters())
    parameter.mutable_grad().fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(one.gradient().equal(gradient));
}

TEST(Gradient, ReachesEveryParameterAndIsTheSumOfItsParts) {
  Case one(Regime::Mild, 25);
  one.rules.trust_region = false;
  const auto total = one.gradient();
  for (const auto& parameter : one.network->parameters()) EXPECT_GT(parameter.grad().norm().item<double>(), 0);
  at::Tensor sum = at::zeros_like(total);
  const auto with = [&](double entropy, double critic) {
    Case part(Regime::Mild, 25);
    part.rules.trust_region = false;
    part.rules.entropy = entropy;
    part.rules.critic = critic;
    return part.gradient();
  };
  const auto policy = with(0, 0);
  const auto parts = policy + (with(one.rules.entropy, 0) - policy) + (with(0, one.rules.critic) - policy);
  EXPECT_LT(relative(parts, total), 1e-12);
}

TEST(Gradient, ABatchTwiceIsTheSameGradient) {
  Case once(Regime::Far, 26), twice(Regime::Far, 26);
  const auto gradient = once.gradient();
  const auto& batch = once.batch;
  for (size_t w = 0; w < batch.windows().size(); ++w) {
    const auto& window = batch.windows()[w];
    for (int64_t i = window.begin; i < window.begin + window.length; ++i) {
      const auto at = static_cast<size_t>(i);
      const std::vector<float> mu(batch.behaviour(i).begin(), batch.behaviour(i).end());
      twice.batch.add_step({batch.observations().data() + i * 5, 5}, {batch.taken()[at]}, batch.rewards()[at], mu);
    }
    twice.batch.end_window(window.ending, {batch.afters().data() + w * 5, 5});
  }
  EXPECT_LT(relative(twice.gradient(), gradient), 1e-12);
}

TEST(Gradient, IsCutToALength) {
  Case one(Regime::Far, 27);
  const auto whole = one.gradient();
  const double norm = whole.norm().item<double>();
  one.rules.largest_gradient = norm / 2;
  const auto cut = one.gradient();
  EXPECT_LT(relative(cut, whole / 2), 1e-12);
  EXPECT_NEAR(one.found.gradient_norm, norm, 1e-12 * norm);
  EXPECT_NEAR(one.found.clipped_norm, norm / 2, 1e-12 * norm);
}

TEST(PlainNetwork, ComputesWhatTheNetworkDoes) {
  const NetworkShape shape{6, {64, 64}, 3};
  Network network(shape, Random(31));
  PlainNetwork<float> plain(shape);
  plain.copy(*network);
  Random random(32);
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < 100; ++i) {
    std::vector<float> seen(6);
    for (float& x : seen) x = static_cast<float>(random.normal());
    plain.forward(seen);
    const auto output = network->forward(at::tensor(at::ArrayRef<float>(seen)).unsqueeze(0));
    for (size_t a = 0; a < 3; ++a) {
      EXPECT_NEAR(plain.policy()[a], output.policy[0][static_cast<int64_t>(a)].item<float>(), 1e-6);
      EXPECT_NEAR(plain.q()[a], output.q[0][static_cast<int64_t>(a)].item<float>(), 1e-6);
    }
  }
}

}  // namespace
}  // namespace farad::acer
