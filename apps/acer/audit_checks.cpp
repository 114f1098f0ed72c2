#include "acer/audit_checks.h"

#include <c10/core/GradMode.h>
#include <farad/error.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "acer/actor_learner.h"
#include "acer/agent.h"
#include "acer/audit_batch.h"
#include "acer/audit_direction.h"
#include "acer/audit_regimes.h"
#include "acer/audit_slope.h"
#include "acer/audit_targets.h"

namespace farad::acer {
namespace {

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
        worst = audit::worse(worst, std::abs(stored[row * policy.size() + a] - static_cast<double>(policy[a])));
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

/// A policy that stays what it is.
class StillParameters final : public Parameters {
 public:
  void pull(Module&, Module&) override {}
  shared::Update step(const Module&, int64_t) override {
    throw Error("[acer] nothing is learned from what is only drawn");
  }
};

/// Chi squared of how often a worker's replay begins windows at each of its steps, when it has forgotten some, beside
/// what an even one exceeds once in a thousand times.
struct Evenness {
  double chi_squared = 0, limit = 0;
};
Evenness evenness_of_replay(Settings settings, Defect defect, uint64_t seed) {
  constexpr int64_t stored = 150, draws = 20'000;
  settings.rules.defect = defect;
  settings.seed = seed;
  settings.workers = 1;
  settings.replay_capacity = stored;
  StillParameters parameters;
  const auto tally = std::make_unique<Tally>();
  ActorLearner learner(settings, parameters, *tally, 0, 0);
  while (tally->steps < stored + settings.window) learner.act();
  const auto spec = learner.spec();
  Batch batch(spec.observation_size, spec.actions, spec.amounts);
  Random random(seed, 1);
  std::vector<double> counts(stored, 0.0);
  for (int64_t i = 0; i < draws; ++i) {
    batch.clear();
    counts.at(static_cast<size_t>(learner.stored().draw(1, random, batch) - 1)) += 1;
  }
  constexpr double expected = static_cast<double>(draws) / stored, freedom = stored - 1;
  Evenness found;
  for (const double count : counts) found.chi_squared += (count - expected) * (count - expected) / expected;
  // By Wilson's and Hilferty's approximation, where 3.09 deviations of a normal number are one in a thousand.
  const double spread = 2 / (9 * freedom);
  found.limit = freedom * std::pow(1 - spread + 3.09 * std::sqrt(spread), 3);
  return found;
}

audit::Finding skipped(const char* check, const char* claim, const char* why) {
  auto finding = audit::finding(check, claim, 0, 0, why);
  finding.outcome = audit::Outcome::Skipped;
  return finding;
}

/// With the defect that is planted, if it is one of the gradient.
Rules planted_in(const Settings& settings, Defect defect) {
  auto rules = settings.rules;
  rules.defect = defect;
  return rules;
}

}  // namespace

std::vector<audit::Check> own_checks(const Settings& settings, const Spec& spec,
                                     const std::function<audit::Learner(const audit::Options&)>& make,
                                     const std::function<Defect(const audit::Options&)>& defect) {
  using audit::Evidence, audit::Options;
  const bool of_amounts = spec.amounts > 0;
  const auto rules = [=](const Options& options) { return planted_in(settings, defect(options)); };
  return {
      [=](const Evidence&, const Options& options) {
        const auto found = gradients_in_regimes(settings, spec, defect(options), options.seed);
        return audit::finding("A1", "so it is on the policy, near it and far off it", found.off_reference, 1e-10,
                              found.note);
      },
      [=](const Evidence&, const Options& options) {
        const auto worst = of_amounts ? worst_slope_of_amounts : worst_slope;
        return audit::finding("A2", "critic and entropy push along the slopes of what they change",
                              worst(make(options), settings, options.seed), 1e-6);
      },
      [=](const Evidence&, const Options& options) {
        return audit::finding("A3", "the average policy is a constant", gradient_of_average(make(options)), 0);
      },
      [=](const Evidence&, const Options& options) {
        return audit::finding("A3", "and so are the weights of actions, the correction's too",
                              worst_weighted_direction(rules(options), options.seed, of_amounts), 1e-6);
      },
      [=](const Evidence&, const Options& options) {
        const char* claim = "directions obey the bound and change no more than it demands";
        if (!settings.rules.trust_region) return skipped("A4", claim, "without a trust region");
        return audit::finding("A4", claim, worst_bounded_direction(rules(options), options.seed, of_amounts), 1e-9);
      },
      [=](const Evidence&, const Options& options) {
        const auto found = gradients_in_regimes(settings, spec, defect(options), options.seed);
        return audit::finding("A5", "policy, critic and entropy add up to it, and none is missing", found.off_sum,
                              1e-12, "relative, without a trust region");
      },
      [=](const Evidence&, const Options& options) {
        const auto worst = of_amounts ? worst_target_of_amounts : worst_target;
        return audit::finding("A6", "Retrace's targets are those computed by hand", worst(rules(options)), 1e-12);
      },
      [=](const Evidence&, const Options& options) {
        const double missed = ends_missed(defect(options) == Defect::TerminalNeverSampled, options.seed);
        return audit::finding("D6", "stored behaviours are the policy's, and the ends of episodes are drawn",
                              audit::worse(missed, worst_behaviour(make(options), settings, spec)), 1e-6);
      },
      [=](const Evidence&, const Options& options) {
        const auto found = evenness_of_replay(settings, defect(options), options.seed);
        return audit::finding("D6", "a worker's replay begins at each of its steps equally often", found.chi_squared,
                              found.limit, "chi squared; more once in a thousand times");
      },
  };
}

}  // namespace farad::acer
