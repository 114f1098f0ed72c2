#pragma once

#include <farad/future.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "optim/plan.h"
#include "optim/service.h"
#include "optim/shard.h"

namespace farad::optim {

/// What an optimizer has at one owner; its coordinator refers to it and calls it. Any thread.
class Participant : public std::enable_shared_from_this<Participant> {
 public:
  /// `worker` must outlive it. Throws, naming the parameter, if one cannot be optimized.
  Participant(Service& worker, ShardPlan plan);

  /// Nothing: that it can be called says that it was made.
  void ready() const {}

  /// First half of a step; the ledger hears the second one. Throws what libtorch's optimizer throws.
  Future<Vote> prepare(const Recipe& recipe);
  /// Both halves, where this is the only owner.
  Future<Vote> step(const Recipe& recipe);

  /// The parameters and what is remembered of them; not while a step has new values for them.
  std::vector<ParameterImage> images() const;
  /// First half of what makes them what they were.
  Future<Vote> prepare_images(uint64_t step, const std::vector<ParameterImage>& images);

  /// Of the gradients that the context has of these parameters: the sum of squares.
  double squared_norm(int64_t context);
  void scale_gradients(int64_t context, double factor);
  void clamp_gradients(int64_t context, double limit);

 private:
  struct Run;
  Future<Vote> start(const Recipe& recipe, bool commit);
  Future<Vote> begin(const std::shared_ptr<Run>& run);
  void compute(const std::shared_ptr<Run>& run);
  Shard::GradientOf gradients_of(const Recipe& recipe);
  void change_gradients(int64_t context, const std::function<at::Tensor(const at::Tensor&)>& change);
  StepId id(uint64_t step) const { return {optimizer_, step}; }

  Service& worker_;
  const uint64_t optimizer_;
  const std::vector<int> owners_;
  std::vector<int64_t> numbers_;  // of the parameters, among all of the optimizer
  std::vector<at::Tensor> parameters_;
  Shard shard_;
};

}  // namespace farad::optim
