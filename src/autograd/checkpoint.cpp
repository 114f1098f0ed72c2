#include <farad/checkpoint.h>
#include <farad/error.h>

#include <ATen/Context.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <string>
#include <utility>

#include "autograd/backward.h"
#include "autograd/end_of_backward.h"
#include "autograd/engine/opaque_node.h"
#include "autograd/running_pass.h"
#include "autograd/torch_compat.h"

namespace farad::autograd {
namespace {

using detail::Tensors;
using torch::autograd::Edge;
using torch::autograd::variable_list;

bool is_differentiable(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

/// The random numbers of this process, as they were when it was made.
class Randomness {
 public:
  /// Of the CPU, and of the devices that `tensors` are on.
  explicit Randomness(const Tensors& tensors) {
    add(at::kCPU);
    for (const auto& tensor : tensors) {
      if (tensor.defined() && !tensor.is_cpu()) add(tensor.device());
    }
  }

  /// As they are now, on the same devices.
  Randomness now() const {
    Randomness now;
    for (const auto& [device, state] : states_) now.add(device);
    return now;
  }
  void restore() const {
    for (const auto& [device, state] : states_) set(device, state);
  }

 private:
  Randomness() = default;

  void add(at::Device device) {
    for (const auto& [known, state] : states_) {
      if (known == device) return;
    }
    auto generator = at::globalContext().defaultGenerator(device);
    std::lock_guard lock(generator.mutex());
    states_.emplace_back(device, generator.get_state());
  }
  static void set(at::Device device, const at::Tensor& state) {
    auto generator = at::globalContext().defaultGenerator(device);
    std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }

  std::vector<std::pair<at::Device, at::Tensor>> states_;
};

/// For its life, random numbers are as they were then.
class RandomnessScope {
 public:
  explicit RandomnessScope(const Randomness& then) : now_(then.now()) { then.restore(); }
  ~RandomnessScope() { now_.restore(); }
  RandomnessScope(const RandomnessScope&) = delete;

 private:
  const Randomness now_;
};

/// The history of the inputs of a function that is run again: keeps their gradients.
class InputsNode final : public OpaqueNode {
 public:
  std::string name() const override { return "CheckpointInputs"; }
  /// One for each input, undefined where none came; none at all if it was not reached.
  variable_list take() { return std::move(gradients_); }

 protected:
  variable_list apply(variable_list&& gradients) override {
    gradients_ = std::move(gradients);
    return {};
  }

 private:
  variable_list gradients_;
};

/// The history of a checkpoint's results: runs the function again, this time recorded, and then its backward pass.
class CheckpointNode final : public OpaqueNode {
 public:
  CheckpointNode(std::function<Tensors(const Tensors&)> function, const Tensors& inputs, at::ThreadLocalState state,
                 Randomness randomness)
      : OpaqueNode(torch::autograd::collect_next_edges(inputs)),
        function_(std::move(function)),
        state_(std::move(state)),
        randomness_(std::move(randomness)) {
    for (const auto& input : inputs) inputs_.emplace_back(input, false);
  }

  std::string name() const override { return "Checkpoint"; }

  void release_variables() override {
    std::lock_guard lock(mutex_);
    for (auto& input : inputs_) input.reset_data();
  }

 protected:
  variable_list apply(variable_list&& gradients) override {
    if (c10::GradMode::is_enabled()) {
      throw Error(
          "[autograd] create_graph reached a checkpoint: gradients of what is computed again cannot be differentiated. "
          "Call its function without checkpoint()");
    }
    const auto sources = compat::make_node<InputsNode>();
    const auto inputs = unpack_onto(sources);
    if (RunningPass* const pass = running_pass(this)) {
      pass->backward.run_within(*pass, gradients, [&] { return compute_again(inputs); });
    } else {
      backward_here(compute_again(inputs), gradients);
    }
    auto results = sources->take();
    results.resize(inputs.size());
    return results;
  }

 private:
  /// The inputs, with `sources` as their history where they require a gradient.
  Tensors unpack_onto(const compat::Ptr<InputsNode>& sources) {
    std::lock_guard lock(mutex_);
    Tensors inputs;
    for (const auto& saved : inputs_) {
      const auto input = saved.unpack();
      if (!input.defined()) {
        sources->add_input_metadata(undefined_input());
        inputs.emplace_back();
        continue;
      }
      auto& made = inputs.emplace_back(input.detach());
      const auto place = sources->add_input_metadata(made);
      if (input.requires_grad()) torch::autograd::impl::set_gradient_edge(made, {sources, place});
    }
    return inputs;
  }

  /// For libtorch's own engine.
  static void backward_here(const Tensors& outputs, const variable_list& gradients) {
    variable_list roots, root_gradients;
    for (size_t i = 0; i < outputs.size(); i++) {
      if (!gradients[i].defined() || !outputs[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      root_gradients.push_back(gradients[i]);
    }
    if (roots.empty()) return;
    BackwardWithin within;
    torch::autograd::backward(roots, root_gradients);
    within.hand_on();
  }

  Tensors compute_again(const Tensors& inputs) {
    const at::ThreadLocalStateGuard as_then(state_);
    const c10::AutoGradMode recording(true);
    const RandomnessScope same_numbers(randomness_);
    auto outputs = function_(inputs);
    if (outputs.size() != num_inputs()) {
      throw Error("[autograd] the function of a checkpoint gave " + std::to_string(num_inputs()) + " tensors, and " +
                  std::to_string(outputs.size()) + " when it was run again: it has to do the same both times");
    }
    return outputs;
  }

  const std::function<Tensors(const Tensors&)> function_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  const at::ThreadLocalState state_;
  const Randomness randomness_;
};

}  // namespace
}  // namespace farad::autograd

namespace farad::detail {

Tensors checkpoint(std::function<Tensors(const Tensors&)> function, Tensors inputs) {
  if (!c10::GradMode::is_enabled()) return function(inputs);
  const at::ThreadLocalState state;
  autograd::Randomness randomness(inputs);
  Tensors outputs;
  {
    const c10::AutoGradMode not_recorded(false);
    outputs = function(inputs);
  }
  auto node =
      autograd::compat::make_node<autograd::CheckpointNode>(std::move(function), inputs, state, std::move(randomness));
  for (auto& output : outputs) {
    if (!output.defined()) {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
      continue;
    }
    // It may be an input, or a tensor that others have: what becomes of them is not ours to say.
    output = output.detach();
    const auto place = node->add_input_metadata(output);
    if (autograd::is_differentiable(output)) torch::autograd::impl::set_gradient_edge(output, {node, place});
  }
  return outputs;
}

}  // namespace farad::detail
