#include "optim/shard.h"

#include <ATen/ops/isfinite.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "wire/device.h"

namespace farad::optim {
namespace {

bool is_finite(const at::Tensor& gradient) {
  const auto values = gradient.is_sparse() ? gradient._values() : gradient;
  return at::isfinite(values).all().item<bool>();
}

/// Copies into memory that is there already, if it fits.
at::Tensor copy_into(at::Tensor memory, const at::Tensor& from) {
  const auto is_dense = [](const at::Tensor& tensor) { return tensor.defined() && tensor.layout() == at::kStrided; };
  if (is_dense(memory) && is_dense(from) && memory.sizes() == from.sizes() && memory.dtype() == from.dtype() &&
      memory.device() == from.device() && memory.strides() == from.strides()) {
    return memory.copy_(from);
  }
  return from.clone();
}

ParameterState copy_into(const std::optional<ParameterState>& memory, const ParameterState& from) {
  ParameterState copy;
  copy.steps = from.steps;
  for (const auto& [name, tensor] : from.tensors) {
    at::Tensor into;
    if (memory) {
      const auto found = memory->tensors.find(name);
      if (found != memory->tensors.end()) into = found->second;
    }
    copy.tensors.emplace(name, copy_into(into, tensor));
  }
  return copy;
}

}  // namespace

Shard::Shard(std::vector<Group> groups) {
  const c10::NoGradGuard no_grad;
  for (auto& group : groups) {
    Part part;
    std::vector<at::Tensor> copies;
    for (auto& parameter : group.parameters) {
      addresses_.push_back(parameter.unsafeGetTensorImpl());
      copies.push_back(parameter.detach().clone());
      part.slots.push_back({std::move(parameter), copies.back()});
    }
    part.optimizer = make_optimizer(group.settings, std::move(copies));
    parts_.push_back(std::move(part));
  }
  std::sort(addresses_.begin(), addresses_.end());
}

bool Shard::prepare(const GradientOf& gradient_of, const std::vector<double>& rates, bool finite) {
  FARAD_CHECK(rates.size() == parts_.size(), "[optim] ", rates.size(), " learning rates for ", parts_.size(),
              " parameter groups");
  const c10::NoGradGuard no_grad;
  try {
    bool all_finite = true;
    for (auto& part : parts_) {
      for (auto& slot : part.slots) {
        auto gradient = gradient_of(slot.parameter);
        if (!gradient.defined()) continue;
        all_finite = all_finite && (!finite || is_finite(gradient));
        stage(part, slot);
        slot.copy.mutable_grad() = gradient.detach();
      }
    }
    if (!all_finite) {
      drop();
      return false;
    }
    for (size_t i = 0; i < parts_.size(); i++) parts_[i].optimizer->step(rates[i]);
  } catch (...) {
    drop();
    throw;
  }
  return true;
}

void Shard::stage(Part& part, Slot& slot) {
  const auto alias = slot.parameter.detach();  // Made anew each time: the user may have given it other memory.
  // Copies grow to fit; the way back, when the step is applied everywhere, they would not.
  FARAD_CHECK(alias.sizes() == slot.copy.sizes(), "[optim] a parameter of ", slot.copy.sizes(), " is of ",
              alias.sizes(), " now: make another optimizer of it");
  const auto state = part.optimizer->state(slot.copy);
  if (state) slot.before = copy_into(std::exchange(slot.spare, {}), *state);
  slot.copy.copy_(alias);
  slot.alias = alias;
}

std::vector<Shard::Image> Shard::images() const {
  std::vector<Image> images;
  for (const auto& part : parts_) {
    for (const auto& slot : part.slots) {
      images.push_back({slot.parameter.detach(), part.optimizer->state(slot.copy)});
    }
  }
  return images;
}

void Shard::prepare(const std::vector<Image>& images) {
  const c10::NoGradGuard no_grad;
  auto image = images.begin();
  try {
    for (auto& part : parts_) {
      for (auto& slot : part.slots) {
        FARAD_CHECK(image != images.end(), "[optim] too few parameters");
        const auto number = image - images.begin();
        const auto fits = [&](const at::Tensor& tensor) { return tensor.sizes() == slot.parameter.sizes(); };
        FARAD_CHECK(fits(image->value) && image->value.dtype() == slot.parameter.dtype(), "[optim] parameter ", number,
                    " here is of ", slot.parameter.dtype(), slot.parameter.sizes(), ", what it is to become of ",
                    image->value.dtype(), image->value.sizes());
        stage(part, slot);
        slot.copy.copy_(image->value);
        std::optional<ParameterState> state;
        if (image->state) {
          state.emplace().steps = image->state->steps;
          for (const auto& [name, tensor] : image->state->tensors) {
            FARAD_CHECK(fits(tensor), "[optim] \"", name, "\" of parameter ", number, " is of ", tensor.sizes(),
                        ", the parameter of ", slot.parameter.sizes());
            state->tensors.emplace(name, tensor.to(slot.copy.device(), slot.copy.scalar_type()).clone());
          }
        }
        part.optimizer->set_state(slot.copy, state);
        ++image;
      }
    }
  } catch (...) {
    drop();
    throw;
  }
}

void Shard::apply() {
  const c10::NoGradGuard no_grad;
  for (auto& part : parts_) {
    for (auto& slot : part.slots) {
      // Counted in the parameter's version, unlike what libtorch's optimizers do to `.data()`.
      if (slot.alias.defined()) slot.alias.copy_(slot.copy);
    }
  }
  // Who uses the parameters next need not do so in the stream that they were written in.
  for (const auto& part : parts_) {
    for (const auto& slot : part.slots) wire::finish_here({&slot.alias, 1});
  }
  clear(true);
}

void Shard::drop() { clear(false); }

void Shard::clear(bool applied) {
  for (auto& part : parts_) {
    for (auto& slot : part.slots) {
      if (!slot.alias.defined()) continue;
      slot.alias.reset();
      slot.copy.mutable_grad().reset();
      if (!applied) {
        auto after = part.optimizer->state(slot.copy);
        part.optimizer->set_state(slot.copy, slot.before);
        slot.before = std::move(after);
      }
      if (slot.before) slot.spare = std::exchange(slot.before, {});
    }
  }
}

}  // namespace farad::optim
