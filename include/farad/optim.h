#pragma once

#include <farad/autograd.h>
#include <farad/detail/optimizer.h>
#include <farad/rref.h>
#include <farad/worker.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace farad {

namespace optim {
class Coordinator;
}

/// Steps parameters where they live; what all DistributedOptimizers have in common. Any thread, one at a time.
class AnyOptimizer {
 public:
  AnyOptimizer(AnyOptimizer&&) noexcept;
  AnyOptimizer& operator=(AnyOptimizer&&) noexcept;
  ~AnyOptimizer();

  /// Applies the gradients that `context` has of the parameters: at all owners or at none. Parameters without one stay,
  /// and so does what the optimizer remembers of them; no `.grad` is read or written. A graph that saved the old value
  /// of a parameter fails by name from then on.
  ///
  /// Throws PeerLost, Timeout, Aborted or what an owner threw, naming the worker. Then no parameter has moved anywhere;
  /// or, if something happened while the step was being applied, the message says at which owners it is applied, at
  /// which it is not because they took this worker for lost, and of which it is not known: those that were lost, and
  /// after a Timeout those that have not answered yet. They hear of it when they can, and end the step then. Optimizers
  /// that share parameters take turns.
  void step(Context& context);
  /// Of the gradients of several contexts, summed up.
  void step(const std::vector<Context*>& contexts);

  /// The same of these sums divided by `scale`; if one of them, on any worker, is not finite, then nothing changes
  /// anywhere, and it gives false. See LossScale.
  bool step_if_finite(const std::vector<Context*>& contexts, double scale = 1);

  /// Scales the gradients that `context` has of the parameters so that their common norm, over all workers, is at most
  /// `max_norm`. Gives the norm before; if that is not finite, nothing is scaled.
  double clip_grad_norm(Context& context, double max_norm);
  /// Cuts each element of these gradients to [-max_value, max_value].
  void clip_grad_value(Context& context, double max_value);

  /// Writes the parameters and what the optimizer remembers of them into a directory of this worker: safetensors files,
  /// and a manifest with their sizes and checksums. If it fails or the process ends meanwhile, the checkpoint that was
  /// there before is still there. Throws Error, and changes nothing, if that is one of other optimizers or of other
  /// numbers of parameters, if a manifest there is none of ours, or if another one is being saved there right now.
  void save(const std::string& directory);
  /// Makes parameters, what is remembered and learning rates what they were: at all owners or at none, as in step().
  /// The optimizer has to have been made with as many parameters, in the same order and with the same options; where
  /// they live does not matter. Throws Error, naming the file, if one is missing, torn, changed or none of ours.
  void load(const std::string& directory);

  /// Of every parameter group, from the next step on. A Schedule goes from there.
  void set_lr(double lr);
  /// Of the first.
  double lr() const;
  size_t group_count() const;
  void set_lr(size_t group, double lr);
  double lr(size_t group) const;

 protected:
  struct Settled {
    std::vector<RRef<at::Tensor>> parameters;
    detail::OptimizerSettings settings;
  };
  AnyOptimizer(Worker& worker, std::vector<Settled> groups);

 private:
  friend class Schedule;
  /// Of what the group was made with, or set_lr() has set since; unlike lr(), not what a checkpoint or a Schedule says.
  void scale_lr(size_t group, double factor);

  std::unique_ptr<optim::Coordinator> coordinator_;
};

/// An optimizer of libtorch over parameters that live on any workers, this one included: torch::optim::SGD with
/// torch::optim::SGDOptions, and so on. What it remembers of a parameter lives with the parameter.
///
/// Throws, naming the parameter and its owner, if one cannot be optimized. LBFGS is refused: it evaluates the model
/// again in the middle of a step.
template <class Optimizer>
class DistributedOptimizer final : public AnyOptimizer {
 public:
  using Options = typename detail::OptionsOf<Optimizer>::type;

  /// Parameters with options of their own.
  struct Group {
    std::vector<RRef<at::Tensor>> parameters;
    Options options;
  };

  DistributedOptimizer(Worker& worker, std::vector<RRef<at::Tensor>> parameters, const Options& options)
      : AnyOptimizer(worker, {{std::move(parameters), detail::settings_of(options)}}) {}
  DistributedOptimizer(Worker& worker, const std::vector<Group>& groups) : AnyOptimizer(worker, settle(groups)) {}

 private:
  static std::vector<Settled> settle(const std::vector<Group>& groups) {
    std::vector<Settled> settled;
    for (const auto& group : groups) settled.push_back({group.parameters, detail::settings_of(group.options)});
    return settled;
  }
};

}  // namespace farad
