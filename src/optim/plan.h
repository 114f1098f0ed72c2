#pragma once

#include <farad/detail/optimizer.h>
#include <farad/rref.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace farad::optim {

/// What an owner is told once: which of its parameters the optimizer steps, and how.
struct ShardPlan {
  struct Group {
    std::vector<RRef<at::Tensor>> parameters;
    std::vector<int64_t> numbers;  ///< of each, among all that the optimizer was given
    detail::OptimizerSettings settings;
    FARAD_FIELDS(parameters, numbers, settings)
  };
  uint64_t optimizer = 0;
  std::vector<int> owners;  ///< all of them, in the order of their ranks
  std::vector<Group> groups;
  FARAD_FIELDS(optimizer, owners, groups)
};

/// What it is told for each step.
struct Recipe {
  uint64_t step = 0;
  std::vector<int64_t> contexts;  ///< whose gradients are summed up
  std::vector<double> rates;      ///< by group
  double scale = 1;               ///< of the gradients; they are divided by it
  bool finite = false;            ///< they have to be
  bool wait = false;              ///< for other optimizers to let go of the parameters
  FARAD_FIELDS(step, contexts, rates, scale, finite, wait)
};

/// A parameter and what the optimizer remembers of it, as they travel to and from a checkpoint.
struct ParameterImage {
  int64_t number = 0;
  at::Tensor value;
  bool remembered = false;  ///< if it was stepped before
  int64_t steps = 0;
  std::map<std::string, at::Tensor> state;
  FARAD_FIELDS(number, value, remembered, steps, state)
};

/// What an owner says to it. Failures are told as such.
enum class Vote : uint8_t {
  Ready,
  Busy,       ///< another optimizer has one of the parameters
  NotFinite,  ///< a gradient is not
  Over,       ///< the step was given up meanwhile
};

}  // namespace farad::optim
