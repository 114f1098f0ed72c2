#include "acer/audit_regimes.h"

#include <c10/core/GradMode.h>
#include <farad/audit.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "acer/agent.h"
#include "acer/audit_reference.h"

namespace farad::acer {
namespace {

using Numbers = std::vector<double>;

constexpr double infinite = std::numeric_limits<double>::infinity();

enum class Regime { On, Near, Far };

Rules rules_in(Regime regime, const Settings& settings, Defect defect) {
  auto rules = settings.rules;
  rules.defect = defect;
  rules.largest_gradient = 0;
  if (regime != Regime::Far) return rules;
  rules.truncation = std::min(rules.truncation, 5.0);
  rules.trust = std::min(rules.trust, 0.01);
  return rules;
}

Numbers flat_gradient(const Module& network) {
  Numbers all;
  for (const auto& parameter : network.parameters()) {
    const auto* values = parameter.grad().data_ptr<double>();
    all.insert(all.end(), values, values + parameter.numel());
  }
  return all;
}

/// An agent whose policy is far from the first one, which is almost even, with a batch for it.
class Case {
 public:
  Case(Regime regime, const Settings& settings, const Spec& spec, Defect defect, uint64_t seed)
      : settings_(with(settings, rules_in(regime, settings, defect))),
        spec_(spec),
        agent_(make_agent(settings_, spec)),
        batch_(spec.observation_size, spec.actions, spec.amounts) {
    fill(agent_->network(), Random(seed, 1), 3);
    fill(agent_->average(), Random(seed, 2), regime == Regime::Far ? 8 : 3);
    agent_->follow_network();
    Random random(seed, 3);
    for (const int64_t length : {7, 1, 4, 1, 12, 2, 5, 2, 2}) {
      for (int64_t i = 0; i < length; ++i) add_step(regime, random);
      batch_.end_window(length % 2 == 0 ? Ending::Terminated : Ending::Cut, observation(random));
    }
    batch_.draw_noise(agent_->actions_drawn(), random);
    agent_->network().to(at::kDouble);
    agent_->average().to(at::kDouble);
  }

  /// By the rules that it was made with, which are those of the agent.
  Numbers gradient() {
    found_ = agent_->learn(batch_);
    return flat_gradient(agent_->network());
  }
  Numbers reference() const {
    auto rules = settings_.rules;
    rules.defect = Defect::None;
    Numbers all;
    for (const auto& part : reference_of(agent_->network(), agent_->average(), batch_, rules))
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  /// The same batch and values, by other rules.
  Numbers gradient_by(const Rules& rules) const {
    const auto other = make_agent(with(settings_, rules), spec_);
    copy(agent_->network(), other->network());
    copy(agent_->average(), other->average());
    other->learn(batch_);
    return flat_gradient(other->network());
  }

  const Rules& rules() const { return settings_.rules; }
  const Findings& found() const { return found_; }

 private:
  static Settings with(Settings settings, const Rules& rules) {
    settings.rules = rules;
    return settings;
  }
  static void copy(const Module& from, Module& to) {
    const c10::NoGradGuard no_grad;
    to.to(at::kDouble);
    const auto &values = from.parameters(), &there = to.parameters();
    for (size_t i = 0; i < values.size(); ++i) there[i].copy_(values[i]);
  }

  void fill(Module& network, Random random, double times) const {
    const c10::NoGradGuard no_grad;
    const auto first = make_network(settings_.shape(spec_), random)->parameters(), values = network.parameters();
    for (size_t i = 0; i < values.size(); ++i) values[i].copy_(first[i] * times);
  }

  std::vector<float> observation(Random& random) const {
    std::vector<float> seen(static_cast<size_t>(spec_.observation_size));
    for (float& x : seen) x = static_cast<float>(random.normal());
    return seen;
  }

  void add_step(Regime regime, Random& random) {
    const auto seen = observation(random);
    const auto now = agent_->behaviour(seen);
    std::vector<float> behaviour(now.begin(), now.end());
    if (spec_.amounts > 0) {
      const double most = regime == Regime::On ? 0 : regime == Regime::Near ? 0.5 : 3;
      for (float& mean : behaviour) mean += static_cast<float>(settings_.rules.deviation * random.uniform(-most, most));
      const auto drawn = agent_->draw(behaviour, random).drawn;
      batch_.add_step(seen, drawn, random.normal(), behaviour);
      return;
    }
    float sum = 0;
    for (float& p : behaviour) {
      if (regime == Regime::Near) p *= static_cast<float>(std::exp(random.uniform(-1, 1)));
      if (regime == Regime::Far) p *= static_cast<float>(std::exp(random.uniform(-6, 2)));
      sum += p;
    }
    for (float& p : behaviour) p /= sum;
    batch_.add_step(seen, {random.below(spec_.actions)}, random.normal(), behaviour);
  }

  const Settings settings_;
  const Spec spec_;
  const std::unique_ptr<Agent> agent_;
  Batch batch_;
  Findings found_;
};

double length_of(const Numbers& numbers) {
  double squares = 0;
  for (const double x : numbers) squares += x * x;
  return std::sqrt(squares);
}

double relative_distance(const Numbers& a, const Numbers& b) {
  Numbers apart(b.size());
  for (size_t i = 0; i < apart.size(); ++i) apart[i] = a[i] - b[i];
  const double length = length_of(b);
  return length == 0 ? length_of(apart) : length_of(apart) / length;
}

/// Of the whole from the sum of what policy, critic and entropy have in it; infinite if one of them that has a weight
/// is missing.
double off_sum(const Case& one, bool has_entropy) {
  auto all = one.rules();
  all.trust_region = false;  // Else the policy's part depends on the entropy's.
  const auto part = [&](bool critic, bool entropy) {
    auto rules = all;
    if (!critic) rules.critic = 0;
    if (!entropy) rules.entropy = 0;
    return one.gradient_by(rules);
  };
  const auto whole = part(true, true), with_critic = part(true, false), with_entropy = part(false, true),
             policy = part(false, false);
  Numbers sum = policy, critic = with_critic, entropy = with_entropy;
  for (size_t i = 0; i < sum.size(); ++i) {
    critic[i] -= policy[i];
    entropy[i] -= policy[i];
    sum[i] += critic[i] + entropy[i];
  }
  if (all.critic > 0 && length_of(critic) == 0) return infinite;
  if (has_entropy && all.entropy > 0 && length_of(entropy) == 0) return infinite;
  return relative_distance(sum, whole);
}

/// Whether it is what the regime is named for.
bool is(Regime regime, const Findings& found, const Rules& rules) {
  if (regime == Regime::On) return std::abs(found.ratio / found.steps - 1) < 1e-2;
  if (regime == Regime::Near) return found.ratio_above_1 > 0;
  return found.correction_loss != 0 && (!rules.trust_region || found.bounded > 0);
}

}  // namespace

InRegimes gradients_in_regimes(const Settings& settings, const Spec& spec, Defect defect, uint64_t seed) {
  InRegimes all;
  for (const auto regime : {Regime::On, Regime::Near, Regime::Far}) {
    Case one(regime, settings, spec, defect, seed);
    all.off_reference = audit::worse(all.off_reference, relative_distance(one.gradient(), one.reference()));
    all.off_sum = audit::worse(all.off_sum, off_sum(one, spec.actions > 0));
    const auto& found = one.found();
    if (!is(regime, found, one.rules())) all.off_reference = audit::worse(all.off_reference, infinite);
    if (regime != Regime::Far) continue;
    char text[96];
    std::snprintf(text, sizeof text, "far off, %.0f %% of ratios are above c and %.0f %% of samples bounded",
                  100 * found.ratio_above_c / found.steps, 100 * found.bounded / found.steps);
    all.note = text;
  }
  return all;
}

}  // namespace farad::acer
