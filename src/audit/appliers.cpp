#include "audit/appliers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <mutex>

#include "audit/numbers.h"
#include "optim/kinds.h"

namespace farad::audit {
namespace {

using farad::detail::OptimizerSettings;

class ByTheModel : public Applier {
 public:
  ByTheModel(shared::Model& model, const std::string& fault, int workers)
      : model_(model), fault_(fault), workers_(workers) {}

  void apply(const Gradients& gradients, int64_t samples) override {
    if (fault_ == "divide-by-N") samples = 1;
    if (fault_ != "no-divide") return step(gradients, static_cast<double>(samples));
    Gradients scaled;  // So that their mean is what the weighted sum is before it is divided.
    for (const auto& one : gradients) scaled.push_back(one.defined() ? one * (samples * workers_) : one);
    step(scaled, 1);
  }

 private:
  void step(const Gradients& gradients, double samples) { model_.step(gradients, samples); }

  shared::Model& model_;
  const std::string fault_;  // Of those that show only where gradients are brought together.
  const int workers_;
};

/// As the training itself does it.
class ByTheTraining : public Applier {
 public:
  ByTheTraining(int worker, int workers, const std::function<void(const Delivery&)>& deliver, shared::Model& model,
                const Gradients& bound)
      : worker_(worker), workers_(workers), deliver_(deliver), model_(model), bound_(bound) {}
  void apply(const Gradients& gradients, int64_t samples) override {
    deliver_({model_, bound_, gradients, samples, worker_, workers_});
  }

 private:
  const int worker_, workers_;
  const std::function<void(const Delivery&)>& deliver_;
  shared::Model& model_;
  const Gradients& bound_;
};

/// Goes around the model's optimizer: changes the parameters in shared memory itself, one process at a time, and lets
/// the model count by a step that changes nothing.
class Around : public Applier {
 public:
  Around(shared::Model& model, Gradients bound, Board& board, Observed observed)
      : model_(model), bound_(std::move(bound)), board_(board), observed_(std::move(observed)) {}

  void apply(const Gradients& gradients, int64_t) override {
    const c10::NoGradGuard no_grad;
    Gradients zeros;
    for (const auto& tensor : bound_) zeros.push_back(at::zeros_like(tensor));
    const std::lock_guard lock(board_);  // Also if one of the next two throws: other processes wait for it.
    change(gradients);
    observed_(model_.step(zeros), gradients);
  }

 protected:
  virtual void change(const Gradients& gradients) = 0;
  shared::Model& model_;
  const Gradients bound_;
  Board& board_;
  const Observed observed_;
};

/// Each process has moments and a count of its own.
class PrivateOptimizer : public Around {
 public:
  PrivateOptimizer(const OptimizerSettings& settings, shared::Model& model, const Gradients& bound, Board& board,
                   Observed observed)
      : Around(model, bound, board, std::move(observed)),
        optimizer_(optim::make_optimizer(settings, bound)),
        rate_(settings.options.at("lr")) {}

 private:
  void change(const Gradients& gradients) override {
    for (size_t i = 0; i < bound_.size(); ++i) bound_[i].mutable_grad() = gradients[i];
    optimizer_->step(rate_);
    for (const auto& tensor : bound_) tensor.mutable_grad() = at::Tensor();
  }

  const std::unique_ptr<optim::TorchOptimizer> optimizer_;
  const double rate_;
};

/// Adam with the moments of all and a count of steps of its own.
class PrivateStep : public Around {
 public:
  PrivateStep(const OptimizerSettings& settings, shared::Model& model, const Gradients& bound, Board& board,
              Observed observed)
      : Around(model, bound, board, std::move(observed)), options_(settings.options) {
    TORCH_CHECK(settings.kind == "Adam", "[audit] private-step is a defect of Adam; this training uses ",
                settings.kind);
  }

 private:
  void change(const Gradients& gradients) override {
    const auto gradient = flatten(gradients, bound_);
    const double beta1 = options_.at("beta1"), beta2 = options_.at("beta2");
    auto mean = board_.moment(0), square = board_.moment(1);
    mean.mul_(beta1).add_(gradient, 1 - beta1);
    square.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
    ++steps_;
    const double correction1 = 1 - std::pow(beta1, steps_), correction2 = 1 - std::pow(beta2, steps_);
    const auto root = (square.sqrt() / std::sqrt(correction2)).add_(options_.at("eps"));
    auto values = flatten(bound_, bound_);
    values.addcdiv_(mean, root, -options_.at("lr") / correction1);
    unflatten(values, bound_);
  }

  const std::map<std::string, double> options_;
  int steps_ = 0;
};

}  // namespace

bool model_observes(const Options& options) {
  return options.inject != "private-optimiser" && options.inject != "private-step";
}

OptimizerSettings settings_for(const Training& training, const Options& options) {
  if (model_observes(options)) return training.optimizer;
  return {"SGD",
          {{"lr", training.optimizer.options.at("lr")},
           {"momentum", 0},
           {"dampening", 0},
           {"weight_decay", 0},
           {"nesterov", 0}}};
}

std::unique_ptr<Applier> make_applier(int worker, const Training& training, const Options& options,
                                      shared::Model& model, const Gradients& bound, Board& board, Observed observed) {
  if (options.inject == "private-optimiser") {
    return std::make_unique<PrivateOptimizer>(training.optimizer, model, bound, board, std::move(observed));
  }
  if (options.inject == "private-step") {
    return std::make_unique<PrivateStep>(training.optimizer, model, bound, board, std::move(observed));
  }
  if (training.deliver) {
    return std::make_unique<ByTheTraining>(worker, options.workers, training.deliver, model, bound);
  }
  const bool together = options.policy == shared::Policy::AllReduced || options.policy == shared::Policy::Managed;
  return std::make_unique<ByTheModel>(model, together ? options.inject : "", options.workers);
}

}  // namespace farad::audit
