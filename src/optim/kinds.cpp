#include "optim/kinds.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <tuple>
#include <utility>

#include "base/check.h"
#include "optim/torch_compat.h"

namespace farad::optim {
namespace {

namespace torch_optim = torch::optim;
using detail::OptimizerSettings;

double option(const OptimizerSettings& settings, const char* name) {
  const auto found = settings.options.find(name);
  FARAD_CHECK(found != settings.options.end(), "[optim] ", settings.kind, " without its option \"", name, "\"");
  return found->second;
}
std::tuple<double, double> betas(const OptimizerSettings& settings) {
  return {option(settings, "beta1"), option(settings, "beta2")};
}

/// Of one kind: its options, and each thing that it remembers, by name.
template <class Optimizer>
struct Kind;

template <>
struct Kind<torch_optim::SGD> {
  using State = torch_optim::SGDParamState;
  static torch_optim::SGDOptions options(const OptimizerSettings& from) {
    return torch_optim::SGDOptions(option(from, "lr"))
        .momentum(option(from, "momentum"))
        .dampening(option(from, "dampening"))
        .weight_decay(option(from, "weight_decay"))
        .nesterov(option(from, "nesterov") != 0);
  }
  template <class S, class Visit>
  static void each(S& state, Visit visit) {
    visit("momentum_buffer", state.momentum_buffer());
  }
};

/// Adam and AdamW, which differ in their defaults and in what they do with weight_decay.
template <class Options, class StateOf>
struct AdamKind {
  using State = StateOf;
  static Options options(const OptimizerSettings& from) {
    return Options(option(from, "lr"))
        .betas(betas(from))
        .eps(option(from, "eps"))
        .weight_decay(option(from, "weight_decay"))
        .amsgrad(option(from, "amsgrad") != 0);
  }
  template <class S, class Visit>
  static void each(S& state, Visit visit) {
    visit("exp_avg", state.exp_avg());
    visit("exp_avg_sq", state.exp_avg_sq());
    visit("max_exp_avg_sq", state.max_exp_avg_sq());
  }
};
template <>
struct Kind<torch_optim::Adam> : AdamKind<torch_optim::AdamOptions, torch_optim::AdamParamState> {};
template <>
struct Kind<torch_optim::AdamW> : AdamKind<torch_optim::AdamWOptions, torch_optim::AdamWParamState> {};

template <>
struct Kind<torch_optim::RMSprop> {
  using State = torch_optim::RMSpropParamState;
  static torch_optim::RMSpropOptions options(const OptimizerSettings& from) {
    return torch_optim::RMSpropOptions(option(from, "lr"))
        .alpha(option(from, "alpha"))
        .eps(option(from, "eps"))
        .weight_decay(option(from, "weight_decay"))
        .momentum(option(from, "momentum"))
        .centered(option(from, "centered") != 0);
  }
  template <class S, class Visit>
  static void each(S& state, Visit visit) {
    visit("square_avg", state.square_avg());
    visit("momentum_buffer", state.momentum_buffer());
    visit("grad_avg", state.grad_avg());
  }
};

template <>
struct Kind<torch_optim::Adagrad> {
  using State = torch_optim::AdagradParamState;
  static torch_optim::AdagradOptions options(const OptimizerSettings& from) {
    return torch_optim::AdagradOptions(option(from, "lr"))
        .lr_decay(option(from, "lr_decay"))
        .weight_decay(option(from, "weight_decay"))
        .initial_accumulator_value(option(from, "initial_accumulator_value"))
        .eps(option(from, "eps"));
  }
  template <class S, class Visit>
  static void each(S& state, Visit visit) {
    visit("sum", state.sum());
  }
};

template <class State>
concept CountsSteps = requires(State& state) { state.step(int64_t{}); };

template <class Optimizer>
class Known final : public TorchOptimizer {
  using State = typename Kind<Optimizer>::State;
  using States = std::decay_t<decltype(std::declval<Optimizer&>().state())>;

 public:
  Known(const OptimizerSettings& settings, std::vector<at::Tensor> tensors)
      : optimizer_(std::move(tensors), Kind<Optimizer>::options(settings)) {}

  void step(double lr) override {
    optimizer_.param_groups().front().options().set_lr(lr);
    optimizer_.step();
  }

  std::optional<ParameterState> state(const at::Tensor& tensor) const override {
    const auto found = optimizer_.state().find(compat::state_key<States>(tensor));
    if (found == optimizer_.state().end()) return {};
    const auto& known = static_cast<const State&>(*found->second);
    ParameterState state;
    Kind<Optimizer>::each(known, [&](const char* name, const at::Tensor& value) {
      if (value.defined()) state.tensors.emplace(name, value);
    });
    if constexpr (CountsSteps<State>) state.steps = known.step();
    return state;
  }

  void set_state(const at::Tensor& tensor, const std::optional<ParameterState>& state) override {
    const auto key = compat::state_key<States>(tensor);
    if (!state) {
      optimizer_.state().erase(key);
      return;
    }
    auto known = std::make_unique<State>();
    Kind<Optimizer>::each(*known, [&](const char* name, at::Tensor& value) {
      const auto found = state->tensors.find(name);
      if (found != state->tensors.end()) value = found->second;
    });
    if constexpr (CountsSteps<State>) known->step(state->steps);
    optimizer_.state()[key] = std::move(known);
  }

  void set_steps([[maybe_unused]] const at::Tensor& tensor, [[maybe_unused]] int64_t steps) override {
    if constexpr (CountsSteps<State>) {
      const auto& known = optimizer_.state().at(compat::state_key<States>(tensor));
      static_cast<State&>(*known).step(steps);
    }
  }

 private:
  Optimizer optimizer_;
};

}  // namespace

std::unique_ptr<TorchOptimizer> make_optimizer(const OptimizerSettings& settings, std::vector<at::Tensor> tensors) {
  const auto& kind = settings.kind;
  if (kind == "SGD") return std::make_unique<Known<torch_optim::SGD>>(settings, std::move(tensors));
  if (kind == "Adam") return std::make_unique<Known<torch_optim::Adam>>(settings, std::move(tensors));
  if (kind == "AdamW") return std::make_unique<Known<torch_optim::AdamW>>(settings, std::move(tensors));
  if (kind == "RMSprop") return std::make_unique<Known<torch_optim::RMSprop>>(settings, std::move(tensors));
  if (kind == "Adagrad") return std::make_unique<Known<torch_optim::Adagrad>>(settings, std::move(tensors));
  throw Error("[optim] no optimizer is called \"" + kind + "\"; there are SGD, Adam, AdamW, RMSprop and Adagrad");
}

}  // namespace farad::optim

namespace farad::detail {
namespace {

double number(bool value) { return value ? 1 : 0; }

template <class Options>
OptimizerSettings adam_settings(const char* kind, const Options& o) {
  return {kind,
          {{"lr", o.lr()},
           {"beta1", std::get<0>(o.betas())},
           {"beta2", std::get<1>(o.betas())},
           {"eps", o.eps()},
           {"weight_decay", o.weight_decay()},
           {"amsgrad", number(o.amsgrad())}}};
}

}  // namespace

OptimizerSettings settings_of(const torch::optim::SGDOptions& o) {
  return {"SGD",
          {{"lr", o.lr()},
           {"momentum", o.momentum()},
           {"dampening", o.dampening()},
           {"weight_decay", o.weight_decay()},
           {"nesterov", number(o.nesterov())}}};
}
OptimizerSettings settings_of(const torch::optim::AdamOptions& o) { return adam_settings("Adam", o); }
OptimizerSettings settings_of(const torch::optim::AdamWOptions& o) { return adam_settings("AdamW", o); }
OptimizerSettings settings_of(const torch::optim::RMSpropOptions& o) {
  return {"RMSprop",
          {{"lr", o.lr()},
           {"alpha", o.alpha()},
           {"eps", o.eps()},
           {"weight_decay", o.weight_decay()},
           {"momentum", o.momentum()},
           {"centered", number(o.centered())}}};
}
OptimizerSettings settings_of(const torch::optim::AdagradOptions& o) {
  return {"Adagrad",
          {{"lr", o.lr()},
           {"lr_decay", o.lr_decay()},
           {"weight_decay", o.weight_decay()},
           {"initial_accumulator_value", o.initial_accumulator_value()},
           {"eps", o.eps()}}};
}

}  // namespace farad::detail
