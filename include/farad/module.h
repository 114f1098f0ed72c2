#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/GradMode.h>
#include <farad/fields.h>
#include <farad/rref.h>
#include <farad/worker.h>
#include <torch/nn/module.h>

#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// Modules of libtorch that live at other workers. A method is called through the reference
/// (`net.rpc_sync<&NetImpl::forward>(x)`), and parameters(net) of <farad/rref.h> is for the optimizer.
///
/// save(), load() and move_to() do not take turns with optimizers: call them while none steps the parameters, or what
/// they read or write may be of two steps. save() and load() of an optimizer do take turns.
namespace farad {
namespace detail {

/// What a module holds, by its own names.
struct ModuleState {
  std::map<std::string, at::Tensor> tensors;  ///< parameters and buffers
  std::vector<std::string> frozen;            ///< parameters that require no gradient
  std::map<std::string, bool> training;       ///< of each module in it, by name; its own has none
  FARAD_FIELDS(tensors, frozen, training)
};

ModuleState state_of(const torch::nn::Module& module);
/// Throws, and has changed nothing, if names, shapes or types differ.
void set_tensors(torch::nn::Module& module, const std::map<std::string, at::Tensor>& tensors);
void set_state(torch::nn::Module& module, const ModuleState& state);
std::string text_of(const torch::nn::Module& module);

void save_tensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors);
std::map<std::string, at::Tensor> load_tensors(const std::string& path);

/// The module itself, or that of a holder or pointer.
template <class Module>
torch::nn::Module& module_in(Module& module) {
  if constexpr (std::is_base_of_v<torch::nn::Module, Module>) {
    return module;
  } else {
    return *module;
  }
}

// --- What runs at the owner ---

template <class Module>
std::string text_here(Module& module) {
  return text_of(module_in(module));
}
template <class Module>
ModuleState state_here(Module& module) {
  return state_of(module_in(module));
}
template <class Module>
void set_tensors_here(Module& module, const std::map<std::string, at::Tensor>& tensors) {
  set_tensors(module_in(module), tensors);
}
template <class Module>
void take_state_here(Module& module, const RRef<Module>& from) {
  set_state(module_in(module), from.template rpc_sync<state_here<Module>>());
}

}  // namespace detail

/// What libtorch prints of it, after its owner's name, and how many numbers it learns.
template <class Module>
std::string describe(const RRef<Module>& module) {
  return module.owner().name + ": " + module.template rpc_sync<detail::text_here<Module>>();
}

/// Writes its parameters and buffers into a safetensors file of this worker, by the names that the module has for them;
/// Python's libraries read it. If it fails or the process ends meanwhile, what was there before is still there.
template <class Module>
void save(const RRef<Module>& module, const std::string& path) {
  const c10::NoGradGuard not_recorded;
  detail::save_tensors(path, module.template rpc_sync<detail::state_here<Module>>().tensors);
}

/// Makes parameters and buffers what such a file says. Throws, and has changed nothing, if the file is none or is of
/// another module: if names, shapes or types differ.
template <class Module>
void load(const RRef<Module>& module, const std::string& path) {
  const c10::NoGradGuard not_recorded;
  module.template rpc_sync<detail::set_tensors_here<Module>>(detail::load_tensors(path));
}

/// The same module at another worker: made there by Make(args...), then parameters, buffers, what is frozen and whether
/// it trains are as here. They go from one owner to the other by the shortest way. The old one is not changed, and ends
/// with its last reference.
///
/// What an optimizer remembers does not move: save() the optimizer, make one of the new parameters, and load() it.
template <auto Make, class Module, class... A>
RRef<Module> move_to(const Worker& worker, const RRef<Module>& module, const Peer& to, A&&... args) {
  static_assert(std::is_same_v<Result<Make>, Module>, "[farad] move_to: Make has to make the same kind of module");
  const auto made = worker.template remote<Make>(to, std::forward<A>(args)...);
  const c10::NoGradGuard not_recorded;
  made.template rpc_sync<detail::take_state_here<Module>>(module);
  return made;
}

}  // namespace farad
