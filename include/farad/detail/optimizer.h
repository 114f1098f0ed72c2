#pragma once

#include <farad/fields.h>

#include <map>
#include <string>
#include <type_traits>

// Declared only: whoever names one of them includes its header, or <torch/torch.h>.
namespace torch::optim {
class SGD;
class Adam;
class AdamW;
class RMSprop;
class Adagrad;
class LBFGS;
struct SGDOptions;
struct AdamOptions;
struct AdamWOptions;
struct RMSpropOptions;
struct AdagradOptions;
}  // namespace torch::optim

namespace farad::detail {

/// An optimizer of libtorch and its options as plain values, which travel: switches are 0 or 1.
struct OptimizerSettings {
  std::string kind;                       ///< "SGD", "Adam", ...
  std::map<std::string, double> options;  ///< "lr", "momentum", ...
  FARAD_FIELDS(kind, options)
};

OptimizerSettings settings_of(const torch::optim::SGDOptions&);
OptimizerSettings settings_of(const torch::optim::AdamOptions&);
OptimizerSettings settings_of(const torch::optim::AdamWOptions&);
OptimizerSettings settings_of(const torch::optim::RMSpropOptions&);
OptimizerSettings settings_of(const torch::optim::AdagradOptions&);
inline const OptimizerSettings& settings_of(const OptimizerSettings& settings) { return settings; }

template <class Optimizer>
struct OptionsOf {
  static constexpr bool lbfgs = std::is_same_v<Optimizer, torch::optim::LBFGS>;
  static_assert(!lbfgs,
                "[optim] LBFGS evaluates the model again during a step, which cannot be at all owners or at none");
  static_assert(lbfgs, "[optim] DistributedOptimizer takes torch::optim::SGD, Adam, AdamW, RMSprop and Adagrad");
};
template <>
struct OptionsOf<torch::optim::SGD> {
  using type = torch::optim::SGDOptions;
};
template <>
struct OptionsOf<torch::optim::Adam> {
  using type = torch::optim::AdamOptions;
};
template <>
struct OptionsOf<torch::optim::AdamW> {
  using type = torch::optim::AdamWOptions;
};
template <>
struct OptionsOf<torch::optim::RMSprop> {
  using type = torch::optim::RMSpropOptions;
};
template <>
struct OptionsOf<torch::optim::Adagrad> {
  using type = torch::optim::AdagradOptions;
};

}  // namespace farad::detail
