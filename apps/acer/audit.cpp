#include "acer/audit.h"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <farad/error.h>

#include <cmath>
#include <memory>

#include "acer/agent.h"
#include "acer/audit_checks.h"
#include "acer/duelling_reference.h"
#include "acer/environments/registry.h"
#include "acer/reference.h"
#include "acer/shared_parameters.h"

namespace farad::acer {
namespace {

const std::vector<audit::Fault> faults{
    {"kl-sign", "A1/A4", "the divergence's gradient points the wrong way"},
    {"denominator-g2", "A1/A4", "the projection is divided by the gradient's length instead of the divergence's"},
    {"bias-attached", "A1", "the correction's weight is differentiated as well"},
    {"q-taken-only", "A1", "the correction uses Q of the action taken for every action"},
    {"done-as-truncation", "A1/A6", "the end of an episode is treated as if it had been cut off"},
    {"terminal-never-sampled", "D6", "the replay never draws the last step of an episode"},
    {"live-rollout", "D6", "the policy changes while it acts, and what is stored is not what it acted by"},
};

Defect defect_named(const std::string& name) {
  if (name == "kl-sign") return Defect::KlSign;
  if (name == "denominator-g2") return Defect::DenominatorG2;
  if (name == "bias-attached") return Defect::BiasAttached;
  if (name == "q-taken-only") return Defect::QTakenOnly;
  if (name == "done-as-truncation") return Defect::DoneAsTruncation;
  return Defect::None;
}

/// A batch of ours as tensors whose rows are steps or windows, so that batches can be concatenated, and back. The last
/// two are there for amounts only.
struct Part {
  enum : size_t { observations, choices, rewards, behaviours, ends, afters, amounts, noise };
};

audit::Batch to_tensors(const Batch& batch) {
  const int64_t steps = batch.steps(), windows = static_cast<int64_t>(batch.windows().size());
  std::vector<int64_t> lengths;
  std::vector<double> drawn_by, taken;
  for (const auto& window : batch.windows()) {
    lengths.push_back(window.length);
    lengths.push_back(window.ending == Ending::Terminated);
  }
  for (int64_t i = 0; i < steps; ++i) {
    drawn_by.insert(drawn_by.end(), batch.behaviour(i).begin(), batch.behaviour(i).end());
    taken.insert(taken.end(), batch.taken_amounts(i).begin(), batch.taken_amounts(i).end());
  }
  const auto rows = [](const auto& values, int64_t count) {
    using Value = typename std::decay_t<decltype(values)>::value_type;
    return at::tensor(at::ArrayRef<Value>(values)).view({count, -1});
  };
  audit::Batch tensors{{rows(batch.observations(), steps), rows(batch.taken(), steps), rows(batch.rewards(), steps),
                        rows(drawn_by, steps), rows(lengths, windows), rows(batch.afters(), windows)},
                       steps};
  if (batch.amounts() > 0) {
    tensors.tensors.push_back(rows(taken, steps));
    tensors.tensors.push_back(rows(batch.noise(), steps));
  }
  return tensors;
}

Batch from_tensors(const audit::Batch& tensors) {
  const auto& all = tensors.tensors;
  const bool of_amounts = all.size() > Part::amounts;
  const int64_t width = all[Part::behaviours].size(1);
  Batch batch(all[Part::observations].size(1), of_amounts ? 0 : width, of_amounts ? width : 0);
  const auto row_in = [&]<class Value>(size_t part, int64_t row, Value) {
    const int64_t size = all[part].size(1);
    return std::span<const Value>(all[part].data_ptr<Value>() + row * size, static_cast<size_t>(size));
  };
  int64_t row = 0;
  for (int64_t w = 0; w < all[Part::ends].size(0); ++w) {
    const auto end = row_in(Part::ends, w, int64_t());
    for (const int64_t next = row + end[0]; row < next; ++row) {
      Action action{row_in(Part::choices, row, int64_t())[0]};
      if (of_amounts) action.amounts = row_in(Part::amounts, row, double());
      const auto drawn_by = row_in(Part::behaviours, row, double());
      batch.add_step(row_in(Part::observations, row, float()), action, row_in(Part::rewards, row, double())[0],
                     std::vector<float>(drawn_by.begin(), drawn_by.end()));
    }
    batch.end_window(end[1] ? Ending::Terminated : Ending::Cut, row_in(Part::afters, w, float()));
  }
  if (of_amounts) {
    const auto* values = all[Part::noise].data_ptr<double>();
    batch.set_noise({values, values + all[Part::noise].numel()});
  }
  return batch;
}

/// Of whichever kind the networks are.
std::vector<std::vector<double>> reference_of(torch::nn::Module& network, torch::nn::Module& average,
                                              const Batch& batch, const Rules& rules) {
  if (batch.amounts() == 0)
    return reference_gradient(*network.as<NetworkImpl>(), *average.as<NetworkImpl>(), batch, rules);
  return reference_gradient(*network.as<DuellingNetworkImpl>(), *average.as<DuellingNetworkImpl>(), batch, rules);
}

/// One copy of the policy and what a worker does with it.
class Copy {
 public:
  Copy(const Settings& settings, const Spec& spec, const audit::Options& options)
      : settings_(with_defect(settings, options)),
        spec_(spec),
        seed_(options.seed),
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

  audit::Batch batch(int worker, uint64_t sequence) const {
    Random random(shared::stream_seed(seed_, static_cast<uint64_t>(worker)), sequence);
    agent_->follow_network();
    Batch batch(spec_.observation_size, spec_.actions, spec_.amounts);
    // A window more or less, so that workers' batches are of different sizes.
    const int64_t windows = 4 + random.below(3);
    for (int64_t w = 0; w < windows; ++w) add_window(w % 2 == 0, random, batch);
    batch.draw_noise(agent_->actions_drawn(), random);
    return to_tensors(batch);
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

  /// A window from the beginning of an episode, acted in by the policy or by something else.
  void add_window(bool on_policy, Random& random, Batch& batch) const {
    const auto environment = make_environment(settings_.environment);
    std::vector<float> seen(static_cast<size_t>(spec_.observation_size));
    environment->reset(random, seen);
    Outcome outcome;
    for (int64_t i = 0; i < settings_.window && !outcome.over(); ++i) {
      const auto policy = agent_->behaviour(seen);
      std::vector<float> behaviour(policy.begin(), policy.end());
      if (!on_policy) leave_policy(behaviour, random);
      if (live_rollout_) drift(behaviour, i);
      const auto before = seen;
      const auto decision = agent_->draw(behaviour, random);
      outcome = environment->step(decision.done, random, seen);
      batch.add_step(before, decision.drawn, settings_.reward_scale * outcome.reward, behaviour);
    }
    batch.end_window(outcome.terminated ? Ending::Terminated : Ending::Cut, seen);
  }

  /// To where importance weights are cut and the trust region acts.
  void leave_policy(std::vector<float>& behaviour, Random& random) const {
    for (float& x : behaviour) {
      if (spec_.amounts > 0) {
        x += static_cast<float>(settings_.rules.deviation * random.uniform(-3, 3));
      } else {
        x = static_cast<float>(std::exp(random.uniform(-6, 0)));
      }
    }
    if (spec_.amounts == 0) normalise(behaviour);
  }

  /// A little, and more from step to step.
  void drift(std::vector<float>& behaviour, int64_t step) const {
    for (size_t a = 0; a < behaviour.size(); ++a) {
      const auto little = static_cast<float>(1e-3 * static_cast<double>(step) * static_cast<double>(a + 1));
      behaviour[a] = spec_.amounts > 0 ? behaviour[a] + little : behaviour[a] * (1 + little);
    }
    if (spec_.amounts == 0) normalise(behaviour);
  }

  static void normalise(std::vector<float>& probabilities) {
    double sum = 0;
    for (const float p : probabilities) sum += static_cast<double>(p);
    for (float& p : probabilities) p = static_cast<float>(static_cast<double>(p) / sum);
  }

  const Settings settings_;
  const Spec spec_;
  const uint64_t seed_;
  const bool live_rollout_;
  const std::unique_ptr<Agent> agent_;
};

/// The audit brings gradients to the model by a loop of its own, so it would find nothing of these.
void refuse_what_is_not_audited(const Settings& settings) {
  if (settings.inject != Fault::None) {
    const auto name = name_of(settings.inject);
    throw Error("[acer] an audit plants defects itself: farad audit --inject " + name +
                " -- farad-acer ..., not farad-acer --inject " + name);
  }
  if (settings.owner) throw Error("[acer] an audit is of workers that share memory; leave out --owner");
}

}  // namespace

audit::Training training_to_audit(const Settings& settings) {
  const auto spec = make_environment(settings.environment)->spec();
  const auto make = [settings, spec](const audit::Options& options) {
    refuse_what_is_not_audited(settings);
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
  training.faults = faults;
  training.checks =
      own_checks(settings, spec, make, [](const audit::Options& options) { return defect_named(options.inject); });
  return training;
}

}  // namespace farad::acer
