#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/detail/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "optim/kinds.h"
#include "optim/locks.h"

namespace farad::optim {

/// The part of a distributed optimizer that lives with the parameters of one owner.
///
/// New values come about in copies, and what the optimizer remembers is kept as it was, so that a step can still be
/// dropped. The copies stay for the next step: memory that is new to the process costs more than copying.
/// One thread at a time, which is who has the locks of its parameters.
class Shard {
 public:
  struct Group {
    std::vector<at::Tensor> parameters;
    detail::OptimizerSettings settings;
  };
  explicit Shard(std::vector<Group> groups);

  /// What tells its parameters from those of other shards of this worker.
  const ParameterLocks::Parameters& parameters() const { return addresses_; }

  using GradientOf = std::function<at::Tensor(const at::Tensor& parameter)>;  ///< undefined if there is none
  /// Computes the new values of the parameters that have a gradient. `rates`: by group. False if a gradient is not
  /// finite and `finite` says that it has to be. What it throws, and false, change nothing.
  bool prepare(const GradientOf& gradient_of, const std::vector<double>& rates, bool finite);
  /// A parameter and what is remembered of it, in the order in which they were given. Not copies.
  struct Image {
    at::Tensor value;
    std::optional<ParameterState> state;
  };
  std::vector<Image> images() const;
  /// Like prepare(): the new values and all that is remembered are those. What it throws changes nothing.
  void prepare(const std::vector<Image>& images);

  /// After prepare(): the new values become the parameters'.
  void apply();
  /// After prepare(): as if it had never been.
  void drop();

 private:
  struct Slot {
    at::Tensor parameter;  // the user's own: gradients are found by it
    at::Tensor copy;       // what libtorch's optimizer steps
    // Of the step that is prepared, if it reaches the parameter:
    at::Tensor alias = {};                      // shares memory and version counter with the parameter
    std::optional<ParameterState> before = {};  // what was remembered
    std::optional<ParameterState> spare = {};   // memory for the next `before`
  };
  struct Part {
    std::vector<Slot> slots;
    std::unique_ptr<TorchOptimizer> optimizer;
  };

  static void stage(Part& part, Slot& slot);
  void clear(bool applied);

  std::vector<Part> parts_;
  ParameterLocks::Parameters addresses_;
};

}  // namespace farad::optim
