#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/detail/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// The optimizers of libtorch behind one face, so that one file knows them apart.
namespace farad::optim {

/// What an optimizer remembers of one parameter. Tensors that it does not use are not there.
struct ParameterState {
  std::map<std::string, at::Tensor> tensors = {};  ///< "exp_avg", "momentum_buffer", ...
  int64_t steps = 0;                               ///< of this parameter, if the optimizer counts them
};

/// An optimizer of libtorch over tensors of ours. One thread at a time.
class TorchOptimizer {
 public:
  virtual ~TorchOptimizer() = default;

  /// Steps those of its tensors that have a `.grad`.
  virtual void step(double lr) = 0;
  /// Of that tensor; none before its first step. The tensors are the optimizer's own, not copies.
  virtual std::optional<ParameterState> state(const at::Tensor& tensor) const = 0;
  /// Takes the tensors as its own.
  virtual void set_state(const at::Tensor& tensor, const std::optional<ParameterState>& state) = 0;
  /// Of a tensor that it has a state of: how often it was stepped. Nothing, if the optimizer does not count.
  virtual void set_steps(const at::Tensor& tensor, int64_t steps) = 0;
};

/// Throws if there is no such kind or its options are not in order.
std::unique_ptr<TorchOptimizer> make_optimizer(const detail::OptimizerSettings& settings,
                                               std::vector<at::Tensor> tensors);

}  // namespace farad::optim
