#include "acer/audit.h"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <farad/error.h>

#include <algorithm>
#include <memory>

#include "acer/actor_learner.h"
#include "acer/audit_batch.h"
#include "acer/audit_checks.h"
#include "acer/audit_reference.h"
#include "acer/environments/registry.h"
#include "acer/shared_parameters.h"

namespace farad::acer {
namespace {

/// A defect that is ACER's own. The one that is planted here, in what the audit is given, has no Defect.
struct Own {
  audit::Fault fault;
  Defect defect = Defect::None;
};
const std::vector<Own> own_faults{
    {{"kl-sign", "A4", "the divergence's gradient points the wrong way"}, Defect::KlSign},
    {{"denominator-g2", "A4", "the projection is divided by the gradient's length instead of the divergence's"},
     Defect::DenominatorG2},
    {{"bias-attached", "A3", "the correction's weight is differentiated as well"}, Defect::BiasAttached},
    {{"q-taken-only", "A1", "the correction uses Q of the action taken for every action"}, Defect::QTakenOnly},
    {{"baseline-cut", "A1", "a state's value is not taken off its target where the episode ends next"},
     Defect::BaselineCut},
    {{"done-as-truncation", "A6", "the end of an episode is treated as if it had been cut off"},
     Defect::DoneAsTruncation},
    {{"truncation-as-done", "A6", "an episode that was cut off is treated as if it had ended"},
     Defect::TruncationAsDone},
    {{"last-stored", "A6", "what follows a window is taken to be worth what its last state is"}, Defect::LastStored},
    {{"no-retrace", "A6", "targets are the returns of the window, however unlikely its actions are now"},
     Defect::NoRetrace},
    {{"taken-only", "A4", "the trust region looks at the action taken alone"}, Defect::TakenOnly},
    {{"bound-after-mean", "A1", "gradients are divided by the number of steps before the trust region bounds them"},
     Defect::BoundAfterMean},
    {{"policy-cut", "A1", "the policy's term and the entropy's have no gradient, because they are not in the graph"},
     Defect::PolicyCut},
    {{"terminal-never-sampled", "D6", "the replay never draws the last step of an episode"},
     Defect::TerminalNeverSampled},
    {{"live-rollout", "D6", "the policy changes while it acts, and what is stored is not what it acted by"}},
};

Defect defect_named(const std::string& name) {
  for (const auto& own : own_faults) {
    if (own.fault.name == name) return own.defect;
  }
  return Defect::None;
}

/// The values of a copy as a worker pulls them, or those of a policy that was before it: far enough away for importance
/// weights to be cut.
class CopiedParameters final : public Parameters {
 public:
  CopiedParameters(Module& network, Module& average, Random random)
      : network_(network), average_(average), random_(random) {}

  void pull(Module& network, Module& average) override {
    const c10::NoGradGuard no_grad;
    copy(network_, network);
    copy(average_, average);
    if (!older) return;
    for (const auto& parameter : network.parameters()) {
      auto* const values = parameter.data_ptr<float>();
      for (int64_t i = 0; i < parameter.numel(); ++i) values[i] += static_cast<float>(0.7 * random_.normal());
    }
  }
  shared::Update step(const Module&, int64_t) override {
    throw Error("[acer] the audit brings gradients to the model itself");
  }

  bool older = false;

 private:
  static void copy(const Module& from, const Module& to) {
    const auto here = from.parameters(), there = to.parameters();
    for (size_t i = 0; i < here.size(); ++i) there[i].copy_(here[i]);
  }

  Module& network_;
  Module& average_;
  Random random_;
};

/// One copy of the policy and what a worker does with it.
class Copy {
 public:
  Copy(const Settings& settings, const Spec& spec, const audit::Options& options)
      : settings_(with_defect(settings, options)),
        worker_settings_(for_worker(settings_, options)),
        spec_(spec),
        live_rollout_(options.inject == "live-rollout"),
        agent_(make_agent(settings_, spec)) {
    const auto first = make_network(settings.shape(spec), random_of(settings, Stream::Network))->parameters();
    for (auto* network : {&agent_->network(), &agent_->average()}) {
      const c10::NoGradGuard no_grad;
      const auto values = network->parameters();
      for (size_t i = 0; i < values.size(); ++i) values[i].copy_(first[i]);
      network->to(options.dtype);
    }
  }

  std::vector<detail::NamedTensor> tensors() { return detail::tensors_of(agent_->network()); }
  std::vector<detail::NamedTensor> average() { return detail::tensors_of(agent_->average()); }

  /// What a worker of a training learns from, that an older policy had acted before and this one acts now.
  audit::Batch batch(int worker, uint64_t sequence) const {
    CopiedParameters parameters(agent_->network(), agent_->average(), Random(worker_settings_.seed, sequence));
    const auto tally = std::make_unique<Tally>();
    ActorLearner learner(worker_settings_, parameters, *tally, worker, static_cast<int>(sequence));
    parameters.older = true;
    for (int i = 0; i < windows_before; ++i) learner.act();
    parameters.older = false;
    auto acted = to_tensors(learner.act(), true);
    if (live_rollout_) drift(acted);
    return joined({std::move(acted), to_tensors(learner.replay(), false)});
  }

  /// Adds to the gradients that the parameters have.
  void gradients(const audit::Batch& tensors) {
    const auto parameters = agent_->network().parameters();
    std::vector<at::Tensor> before;
    for (const auto& parameter : parameters) before.push_back(parameter.grad());
    agent_->learn(from_tensors(tensors));
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (before[i].defined()) parameters[i].mutable_grad() = before[i] + parameters[i].grad();
    }
  }

  std::vector<at::Tensor> reference(const audit::Batch& tensors) const {
    auto rules = settings_.rules;
    rules.defect = Defect::None;
    std::vector<at::Tensor> all;
    const auto parameters = agent_->network().parameters();
    const auto gradients = reference_of(agent_->network(), agent_->average(), from_tensors(tensors), rules);
    for (size_t i = 0; i < gradients.size(); ++i) {
      all.push_back(
          at::tensor(at::ArrayRef<double>(gradients[i])).view(parameters[i].sizes()).to(parameters[i].scalar_type()));
    }
    return all;
  }

 private:
  static Settings with_defect(Settings settings, const audit::Options& options) {
    settings.rules.largest_gradient = 0;  // So that means of gradients are gradients of means.
    settings.rules.defect = defect_named(options.inject);
    return settings;
  }

  static constexpr int64_t windows_before = 6;

  /// Of the worker that makes batches: with random numbers of the audit's, and no more room than it needs.
  static Settings for_worker(Settings settings, const audit::Options& options) {
    settings.seed = shared::stream_seed(options.seed, 0);
    settings.workers = options.workers;
    settings.replay_capacity = options.workers * (windows_before + 1) * settings.window;
    settings.replay_windows = std::min<int64_t>(settings.replay_windows, 4);
    return settings;
  }

  /// What is stored of a window is a little off, and more from step to step, as if the policy had changed meanwhile.
  void drift(audit::Batch& acted) const {
    auto& behaviours = acted.tensors[BatchPart::behaviours];
    const int64_t width = behaviours.size(1);
    auto* row = behaviours.data_ptr<double>();
    for (int64_t step = 0; step < behaviours.size(0); ++step, row += width) {
      double sum = 0;
      for (int64_t a = 0; a < width; ++a) {
        const double little = 1e-3 * static_cast<double>(step * (a + 1));
        sum += row[a] = spec_.amounts > 0 ? row[a] + little : row[a] * (1 + little);
      }
      for (int64_t a = 0; a < width && spec_.amounts == 0; ++a) row[a] /= sum;
    }
  }

  const Settings settings_, worker_settings_;
  const Spec spec_;
  const bool live_rollout_;
  const std::unique_ptr<Agent> agent_;
};

/// The audit brings gradients to the model by a loop of its own, so it would find nothing of these.
void refuse_what_is_not_audited(const Settings& settings, const std::vector<std::string>& given) {
  for (const auto& option : given) {
    throw Error("[acer] an audit decides " + option + " itself: farad audit " + option +
                " ... -- farad-acer ..., not farad-acer " + option);
  }
  if (settings.inject != Fault::None) {
    const auto name = name_of(settings.inject);
    throw Error("[acer] an audit plants defects itself: farad audit --inject " + name +
                " -- farad-acer ..., not farad-acer --inject " + name);
  }
  if (settings.owner) throw Error("[acer] an audit is of workers that share memory; leave out --owner");
}

/// Of this training: what it does not do at all it cannot do wrongly.
void refuse_what_is_no_defect(const Settings& settings, const Spec& spec, const std::string& planted) {
  const auto defect = defect_named(planted);
  if (spec.amounts > 0 && defect == Defect::TakenOnly)
    throw Error("[acer] taken-only is a defect of actions to choose from; those of " + spec.name + " are amounts");
  const bool of_the_bound = defect == Defect::KlSign || defect == Defect::DenominatorG2 ||
                            defect == Defect::TakenOnly || defect == Defect::BoundAfterMean;
  if (of_the_bound && !settings.rules.trust_region)
    throw Error("[acer] " + planted + " is a defect of the trust region, which --no-trust-region does without");
}

}  // namespace

audit::Training training_to_audit(const Settings& settings, const std::vector<std::string>& given) {
  const auto spec = make_environment(settings.environment)->spec();
  const auto make = [settings, spec, given](const audit::Options& options) {
    refuse_what_is_not_audited(settings, given);
    refuse_what_is_no_defect(settings, spec, options.inject);
    const auto copy = std::make_shared<Copy>(settings, spec, options);
    audit::Learner learner;
    learner.tensors = copy->tensors();
    learner.average = copy->average();
    learner.batch = [copy](int worker, uint64_t sequence) { return copy->batch(worker, sequence); };
    learner.gradients = [copy](const audit::Batch& batch) { copy->gradients(batch); };
    learner.reference = [copy](const audit::Batch& batch) { return copy->reference(batch); };
    return learner;
  };
  audit::Training training("acer on " + spec.name, make, optimizer_of(settings));
  training.moving_average = settings.averaging;
  training.largest_gradient = settings.rules.largest_gradient;
  for (const auto& own : own_faults) training.faults.push_back(own.fault);
  training.checks =
      own_checks(settings, spec, make, [](const audit::Options& options) { return defect_named(options.inject); });
  return training;
}

}  // namespace farad::acer
