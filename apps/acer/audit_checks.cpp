#include "acer/audit_checks.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "acer/agent.h"
#include "acer/audit_batch.h"
#include "acer/audit_slope.h"
#include "acer/duelling_gradient.h"
#include "acer/gaussian.h"
#include "acer/gradient.h"
#include "acer/replay.h"

namespace farad::acer {
namespace {

std::vector<double> distribution(size_t actions, Random& random) {
  std::vector<double> p(actions);
  double sum = 0;
  for (double& x : p) sum += x = std::exp(random.uniform(-6, 0));
  for (double& x : p) x /= sum;
  return p;
}

/// By how much directions of random samples break the bound, or are changed otherwise than it demands. `sample` gives
/// one for the rules, and the divergence's gradient, computed there once more.
template <class Sampled>
double worst_direction(Defect defect, uint64_t seed, Sampled sample) {
  Random random(seed);
  Rules rules;
  rules.trust = 0.5;
  rules.defect = defect;
  Direction direction;
  double worst = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::vector<double> k = sample(random, rules, direction);
    double kz = 0, kk = 0, moved = 0, longest = 1;
    for (size_t a = 0; a < k.size(); ++a) {
      kz += k[a] * direction.allowed[a];
      kk += k[a] * k[a];
      moved += k[a] * (direction.wanted[a] - direction.allowed[a]);
      longest = std::max(longest, std::abs(direction.wanted[a]));
    }
    const double scale = longest * std::max(1.0, std::sqrt(kk));
    worst = std::max(worst, (kz - rules.trust) / scale);
    if (direction.wanted == direction.allowed) continue;
    worst = std::max(worst, std::abs(kz - rules.trust) / scale);
    for (size_t a = 0; a < k.size(); ++a) {
      const double away = direction.wanted[a] - direction.allowed[a] - moved / kk * k[a];
      worst = std::max(worst, std::abs(away) / longest);
    }
  }
  return worst;
}

std::vector<double> direction_of_choice(Random& random, const Rules& rules, Direction& direction) {
  const auto policy = distribution(3, random), behaviour = distribution(3, random), average = distribution(3, random);
  const std::vector<double> q{random.normal(), random.normal(), random.normal()};
  const double value = policy[0] * q[0] + policy[1] * q[1] + policy[2] * q[2];
  find_direction(Sample{policy, behaviour, average, q, random.below(3), value, random.normal()}, rules, direction);
  return {-average[0] / policy[0], -average[1] / policy[1], -average[2] / policy[2]};
}

std::vector<double> direction_of_amounts(Random& random, const Rules& rules, Direction& direction) {
  const auto numbers = [&] { return std::vector<double>{random.normal(), random.normal()}; };
  const auto mean = numbers(), behaviour = numbers(), average = numbers(), action = numbers(), other = numbers();
  find_direction(GaussianSample{mean, behaviour, average, action, other, random.normal(), random.normal()}, rules,
                 direction);
  const double variance = rules.deviation * rules.deviation;
  return {(mean[0] - average[0]) / variance, (mean[1] - average[1]) / variance};
}

double largest_gap(const std::vector<double>& values, const std::vector<double>& wanted) {
  double worst = 0;
  for (size_t i = 0; i < wanted.size(); ++i) worst = std::max(worst, std::abs(values[i] - wanted[i]));
  return worst;
}

/// By how much targets are off, for a policy that is even everywhere and a critic by which states are worth 4 times
/// what is observed: 1 at each step, and half of it after windows.
double worst_target(Defect defect) {
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
  Rules rules;
  rules.discount = 0.5;
  rules.defect = defect;
  Gradient gradient(rules);
  gradient.compute(*network, *network, batch);
  return largest_gap(gradient.targets(), {3, 4, 1 + 0.5 * (3 - 2 + 4), 3, 1 + 0.5 * (2.0 / 3 * (4 - 2) + 4), 4});
}

/// The same for amounts: two, everywhere 0 in the mean, with a deviation of 1.
double worst_target_of_amounts(Defect defect) {
  const NetworkShape shape{1, {}, 0, 2};
  DuellingNetwork network(shape, Random(1));
  network->to(at::kDouble);
  {
    const c10::NoGradGuard no_grad;
    for (auto& parameter : network->parameters()) parameter.zero_();
    network->value_head().weight.fill_(4);
  }
  Rules rules;
  rules.discount = 0.5;
  rules.deviation = 1;
  rules.defect = defect;
  Batch batch(1, 0, 2);
  const float seen = 1, after = 0.5;
  const std::vector<double> aside{1, 0};
  for (const auto ending : {Ending::Terminated, Ending::Cut}) {
    batch.add_step({&seen, 1}, {0, aside}, 1, std::vector<float>{0, 0});
    batch.add_step({&seen, 1}, {0, aside}, 8, std::vector<float>{1, 0});  // less likely now, by exp(-1/2)
    batch.end_window(ending, {&after, 1});
  }
  Random random(1);
  batch.draw_noise(DuellingGradient::actions_drawn(rules), random);
  DuellingGradient gradient(rules);
  gradient.compute(*network, *network, batch);
  const double root = std::exp(-0.25);
  return std::max(
      largest_gap(gradient.targets(), {1 + 0.5 * (root * (8 - 4) + 4), 8, 1 + 0.5 * (root * (9 - 4) + 4), 9}),
      largest_gap(gradient.policy_targets(), {1 + 0.5 * 8, 8, 1 + 0.5 * 9, 9}));
}

/// Whether the average has an effect on the gradient other than by its values.
double gradient_of_average(const audit::Learner& learner) {
  const auto batch = learner.batch(0, 0);
  const auto gradients = [&] {
    for (const auto& one : learner.tensors) one.tensor.mutable_grad() = at::Tensor();
    learner.gradients(batch);
    std::vector<at::Tensor> all;
    for (const auto& one : learner.tensors) all.push_back(one.tensor.grad().clone());
    return all;
  };
  const auto attached = gradients();
  for (const auto& one : learner.average) {
    if (one.tensor.grad().defined()) return 1;
    one.tensor.set_requires_grad(false);
  }
  const auto detached = gradients();
  for (size_t i = 0; i < attached.size(); ++i) {
    if (!attached[i].equal(detached[i])) return 1;
  }
  return 0;
}

/// By how much behaviours that are stored as the policy's are not what the policy is.
double worst_behaviour(const audit::Learner& learner, const Settings& settings, const Spec& spec) {
  const auto agent = make_agent(settings, spec);
  const auto parameters = agent->network().parameters();
  {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(learner.tensors[i].tensor);
  }
  agent->follow_network();
  const auto batch = learner.batch(0, 1);
  const auto* seen = batch.tensors[BatchPart::observations].data_ptr<float>();
  const auto* stored = batch.tensors[BatchPart::behaviours].data_ptr<double>();
  const auto& windows = batch.tensors[BatchPart::windows];
  const auto width = static_cast<size_t>(spec.observation_size);
  double worst = 0;
  size_t row = 0;
  for (int64_t w = 0; w < windows.size(0); ++w) {
    const auto* window = windows.data_ptr<int64_t>() + w * WindowColumn::count;
    for (const size_t end = row + static_cast<size_t>(window[WindowColumn::length]); row < end; ++row) {
      if (!window[WindowColumn::on_policy]) continue;
      const auto policy = agent->behaviour({seen + row * width, width});
      for (size_t a = 0; a < policy.size(); ++a)
        worst = std::max(worst, std::abs(stored[row * policy.size() + a] - static_cast<double>(policy[a])));
    }
  }
  return worst;
}

/// Which part of the last steps of episodes was never drawn.
double ends_missed(bool misses_ends, uint64_t seed) {
  constexpr int64_t episodes = 20, length = 10;
  Replay replay(episodes * length, 1, 1, 0, misses_ends);
  const float one = 1;
  for (int64_t i = 0; i < episodes * length; ++i) {
    const auto number = static_cast<float>(i);
    replay.add({&number, 1}, {}, {&one, 1}, {.terminated = (i + 1) % length == 0}, {&number, 1});
  }
  Random random(seed);
  Batch batch(1, 1);
  std::vector<bool> drawn(episodes, false);
  for (int i = 0; i < 2000; ++i) {
    batch.clear();
    replay.draw(5, random, batch);
    const auto last = static_cast<int64_t>(batch.observations().back());
    if ((last + 1) % length == 0) drawn[static_cast<size_t>(last / length)] = true;
  }
  return static_cast<double>(std::count(drawn.begin(), drawn.end(), false)) / episodes;
}

audit::Finding skipped(const char* check, const char* claim, const char* why) {
  auto finding = audit::finding(check, claim, 0, 0, why);
  finding.outcome = audit::Outcome::Skipped;
  return finding;
}

}  // namespace

std::vector<audit::Check> own_checks(const Settings& settings, const Spec& spec,
                                     const std::function<audit::Learner(const audit::Options&)>& make,
                                     const std::function<Defect(const audit::Options&)>& defect) {
  using audit::Evidence, audit::Options;
  const bool of_amounts = spec.amounts > 0;
  return {
      [=](const Evidence&, const Options& options) {
        const char* claim = "critic and entropy push along the slopes of what they change";
        if (of_amounts) return skipped("A2", claim, "not for amounts");
        return audit::finding("A2", claim, worst_slope(make(options), settings, options.seed), 1e-6);
      },
      [=](const Evidence&, const Options& options) {
        return audit::finding("A3", "the average policy is a constant", gradient_of_average(make(options)), 0);
      },
      [=](const Evidence&, const Options& options) {
        return audit::finding(
            "A4", "directions obey the bound and change no more than it demands",
            worst_direction(defect(options), options.seed, of_amounts ? direction_of_amounts : direction_of_choice),
            1e-9);
      },
      [=](const Evidence&, const Options& options) {
        const auto off = of_amounts ? worst_target_of_amounts(defect(options)) : worst_target(defect(options));
        return audit::finding("A6", "Retrace's targets are those computed by hand", off, 1e-12);
      },
      [=](const Evidence&, const Options& options) {
        const double missed = ends_missed(options.inject == "terminal-never-sampled", options.seed);
        return audit::finding("D6", "stored behaviours are the policy's, and the ends of episodes are drawn",
                              std::max(missed, worst_behaviour(make(options), settings, spec)), 1e-6);
      },
  };
}

}  // namespace farad::acer
