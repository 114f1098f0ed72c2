#include <farad/module.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "base/check.h"
#include "optim/safetensors.h"

namespace farad::detail {
namespace {

/// Parameters and buffers: the very tensors.
std::map<std::string, at::Tensor> tensors_in(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace(item.key(), item.value());
  return tensors;
}

}  // namespace

ModuleState state_of(const torch::nn::Module& module) {
  ModuleState state;
  for (const auto& [name, tensor] : tensors_in(module)) state.tensors.emplace(name, tensor.detach());
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) state.frozen.push_back(item.key());
  }
  state.training.emplace("", module.is_training());
  for (const auto& item : module.named_modules("", false))
    state.training.emplace(item.key(), item.value()->is_training());
  return state;
}

void set_tensors(torch::nn::Module& module, const std::map<std::string, at::Tensor>& tensors) {
  const auto ours = tensors_in(module);
  for (const auto& [name, tensor] : tensors) {
    const auto found = ours.find(name);
    FARAD_CHECK(found != ours.end(), "[module] ", module.name(), " has no \"", name, "\"; nothing was changed");
    const auto& mine = found->second;
    FARAD_CHECK(mine.sizes() == tensor.sizes() && mine.dtype() == tensor.dtype(), "[module] \"", name, "\" of ",
                module.name(), " is of ", mine.dtype(), mine.sizes(), ", what it is to become of ", tensor.dtype(),
                tensor.sizes(), "; nothing was changed");
  }
  for (const auto& [name, mine] : ours) {
    FARAD_CHECK(tensors.contains(name), "[module] there is no \"", name, "\" for ", module.name(),
                "; nothing was changed");
  }
  const c10::NoGradGuard no_grad;
  for (const auto& [name, mine] : ours) at::Tensor(mine).copy_(tensors.at(name));
}

void set_state(torch::nn::Module& module, const ModuleState& state) {
  set_tensors(module, state.tensors);
  for (auto& item : module.named_parameters()) {
    const bool frozen = std::find(state.frozen.begin(), state.frozen.end(), item.key()) != state.frozen.end();
    item.value().set_requires_grad(!frozen);
  }
  // What is in a module comes after it, and train() goes down: so the innermost word counts.
  module.train(state.training.at(""));
  for (const auto& item : module.named_modules("", false)) {
    const auto found = state.training.find(item.key());
    if (found != state.training.end()) item.value()->train(found->second);
  }
}

std::string text_of(const torch::nn::Module& module) {
  int64_t learned = 0;
  for (const auto& parameter : module.parameters()) learned += parameter.requires_grad() ? parameter.numel() : 0;
  std::ostringstream text;
  text << module << ", learns " << learned << " numbers";
  return text.str();
}

void save_tensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
  const auto aside = path + ".new";
  optim::FileMark mark;
  auto status = optim::write_tensors(aside, tensors, mark);
  if (status.ok() && std::rename(aside.c_str(), path.c_str()) != 0) {
    status = {base::Code::Invalid, "[module] " + path + ": rename: " + std::strerror(errno)};
  }
  if (status.ok()) return;
  std::remove(aside.c_str());
  status.raise();
}

std::map<std::string, at::Tensor> load_tensors(const std::string& path) {
  optim::NamedTensors tensors;
  optim::read_tensors(path, tensors).raise();
  return tensors;
}

}  // namespace farad::detail
