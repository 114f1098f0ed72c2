#include "acer/audit.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <torch/optim/rmsprop.h>

#include <cmath>
#include <memory>

#include "acer/actor_learner.h"
#include "acer/audit_checks.h"
#include "acer/environments/registry.h"
#include "acer/gradient.h"
#include "acer/plain_network.h"
#include "acer/reference.h"

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

/// A batch of ours as tensors whose rows are steps or windows, so that batches can be concatenated, and back.
audit::Batch to_tensors(const Batch& batch) {
  const int64_t steps = batch.steps(), windows = static_cast<int64_t>(batch.windows().size());
  std::vector<int64_t> ends;
  std::vector<double> behaviour;
  for (const auto& window : batch.windows()) {
    ends.push_back(window.length);
    ends.push_back(window.ending == Ending::Terminated);
  }
  for (int64_t i = 0; i < steps; ++i)
    behaviour.insert(behaviour.end(), batch.behaviour(i).begin(), batch.behaviour(i).end());
  const auto rows = [](const auto& values, int64_t count) {
    using Value = typename std::decay_t<decltype(values)>::value_type;
    return at::tensor(at::ArrayRef<Value>(values)).view({count, -1});
  };
  return {{rows(batch.observations(), steps), rows(batch.taken(), steps), rows(batch.rewards(), steps),
           rows(behaviour, steps), rows(ends, windows), rows(batch.afters(), windows)},
          steps};
}

Batch from_tensors(const audit::Batch& tensors) {
  const auto& all = tensors.tensors;
  const int64_t size = all[0].size(1), actions = all[3].size(1);
  Batch batch(size, actions);
  const auto* seen = all[0].data_ptr<float>();
  const auto* afters = all[5].data_ptr<float>();
  const auto* ends = all[4].data_ptr<int64_t>();
  int64_t row = 0;
  for (int64_t w = 0; w < all[4].size(0); ++w) {
    for (const int64_t end = row + ends[2 * w]; row < end; ++row) {
      const auto* behaviour = all[3].data_ptr<double>() + row * actions;
      batch.add_step({seen + row * size, static_cast<size_t>(size)}, all[1].data_ptr<int64_t>()[row],
                     all[2].data_ptr<double>()[row], std::vector<float>(behaviour, behaviour + actions));
    }
    batch.end_window(ends[2 * w + 1] ? Ending::Terminated : Ending::Cut,
                     {afters + w * size, static_cast<size_t>(size)});
  }
  return batch;
}

/// One copy of the policy and what a worker does with it.
class Copy {
 public:
  Copy(const Settings& settings, const Spec& spec, const audit::Options& options)
      : settings_(settings),
        spec_(spec),
        seed_(options.seed),
        live_rollout_(options.inject == "live-rollout"),
        network_(settings.shape(spec.observation_size, spec.actions), random_of(settings, Stream::Network)),
        average_(settings.shape(spec.observation_size, spec.actions), random_of(settings, Stream::Network)) {
    settings_.rules.largest_gradient = 0;  // So that means of gradients are gradients of means.
    settings_.rules.defect = defect_named(options.inject);
    network_->to(options.dtype);
    average_->to(options.dtype);
  }

  std::vector<detail::NamedTensor> tensors() { return detail::tensors_of(network_); }
  std::vector<detail::NamedTensor> average() { return detail::tensors_of(average_); }

  audit::Batch batch(int worker, uint64_t sequence) const {
    Random random(shared::stream_seed(seed_, static_cast<uint64_t>(worker)), sequence);
    PlainNetwork<double> policy(network_->shape());
    policy.copy(*network_);
    Batch batch(spec_.observation_size, spec_.actions);
    // A window more or less, so that workers' batches are of different sizes.
    const int64_t windows = 4 + random.below(3);
    for (int64_t w = 0; w < windows; ++w) add_window(policy, w % 2 == 0, random, batch);
    return to_tensors(batch);
  }

  /// Adds to the gradients that the parameters have.
  void gradients(const audit::Batch& tensors) {
    std::vector<at::Tensor> before;
    for (const auto& parameter : network_->parameters()) before.push_back(parameter.grad());
    Gradient(settings_.rules).compute(*network_, *average_, from_tensors(tensors));
    const auto parameters = network_->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (before[i].defined()) parameters[i].mutable_grad() = before[i] + parameters[i].grad();
    }
  }

  std::vector<at::Tensor> reference(const audit::Batch& tensors) const {
    auto rules = settings_.rules;
    rules.defect = Defect::None;
    std::vector<at::Tensor> all;
    const auto parameters = network_->parameters();
    const auto gradients = reference_gradient(*network_, *average_, from_tensors(tensors), rules);
    for (size_t i = 0; i < gradients.size(); ++i) {
      all.push_back(
          at::tensor(at::ArrayRef<double>(gradients[i])).view(parameters[i].sizes()).to(parameters[i].scalar_type()));
    }
    return all;
  }

 private:
  /// A window from the beginning of an episode, acted in by the policy or by something else.
  void add_window(PlainNetwork<double>& policy, bool on_policy, Random& random, Batch& batch) const {
    const auto environment = make_environment(settings_.environment);
    std::vector<float> seen(static_cast<size_t>(spec_.observation_size)), behaviour(static_cast<size_t>(spec_.actions));
    environment->reset(random, seen);
    Outcome outcome;
    for (int64_t i = 0; i < settings_.window && !outcome.over(); ++i) {
      policy.forward(seen);
      double sum = 0;
      for (size_t a = 0; a < behaviour.size(); ++a) {
        double weight = on_policy ? policy.policy()[a] : std::exp(random.uniform(-6, 0));
        if (live_rollout_) weight *= 1 + 1e-3 * static_cast<double>(i * static_cast<int64_t>(a));
        behaviour[a] = static_cast<float>(weight);
        sum += weight;
      }
      for (float& mu : behaviour) mu = static_cast<float>(static_cast<double>(mu) / sum);
      const auto before = seen;
      const int64_t action = choose(behaviour, random.uniform());
      outcome = environment->step({action}, random, seen);
      batch.add_step(before, action, outcome.reward, behaviour);
    }
    batch.end_window(outcome.terminated ? Ending::Terminated : Ending::Cut, seen);
  }

  Settings settings_;
  const Spec spec_;
  const uint64_t seed_;
  const bool live_rollout_;
  Network network_, average_;
};

}  // namespace

audit::Training training_to_audit(const Settings& settings) {
  const auto spec = make_environment(settings.environment)->spec();
  const auto make = [settings, spec](const audit::Options& options) {
    const auto copy = std::make_shared<Copy>(settings, spec, options);
    audit::Learner learner;
    learner.tensors = copy->tensors();
    learner.average = copy->average();
    learner.batch = [copy](int worker, uint64_t sequence) { return copy->batch(worker, sequence); };
    learner.gradients = [copy](const audit::Batch& batch) { copy->gradients(batch); };
    learner.reference = [copy](const audit::Batch& batch) { return copy->reference(batch); };
    return learner;
  };
  const auto rmsprop = torch::optim::RMSpropOptions(settings.learning_rate).alpha(0.99).eps(1e-5);
  audit::Training training("acer on " + spec.name, make, rmsprop);
  training.moving_average = settings.averaging;
  training.faults = faults;
  training.checks = own_checks(settings.shape(spec.observation_size, spec.actions), make,
                               [](const audit::Options& options) { return defect_named(options.inject); });
  return training;
}

}  // namespace farad::acer
