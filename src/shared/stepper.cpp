#include "shared/stepper.h"

#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/Scalar.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace farad::shared {
namespace {

/// With tensors of its own.
std::optional<optim::ParameterState> copy_of(const std::optional<optim::ParameterState>& state) {
  if (!state) return {};
  optim::ParameterState copy{{}, state->steps};
  for (const auto& [name, tensor] : state->tensors) copy.tensors.emplace(name, tensor.clone());
  return copy;
}

/// Of values: beyond it a step is arithmetic, and one more copy of the gradients would cost more than it saves.
constexpr size_t most_bytes_of_whole = 1 << 20;

bool is_plain(const detail::OptimizerSettings& settings) {
  return settings.kind == "SGD" && settings.options.at("momentum") == 0 && settings.options.at("weight_decay") == 0;
}

}  // namespace

Stepper::Stepper(const std::shared_ptr<Segment>& segment, const Layout& layout,
                 const detail::OptimizerSettings& settings)
    : moving_average_(layout.moving_average()), plain_(is_plain(settings)) {
  for (const auto& place : layout.places()) {
    if (place.buffer) buffers_.push_back({place.name, Segment::view(segment, place.offset, place)});
    if (!place.trained) continue;
    trained_.push_back(Segment::view(segment, place.offset, place));
    auto& memory = memories_.emplace_back();
    memory.name = place.name;
    memory.steps = reinterpret_cast<std::atomic<int64_t>*>(segment->values() + place.steps);
    for (const auto& [name, offset] : place.remembered) {
      memory.remembered.emplace(name, Segment::view(segment, offset, place));
    }
    if (moving_average_ > 0) memory.average = Segment::view(segment, place.average, place);
  }
  optimizer_ = optim::make_optimizer(settings, trained_);
  for (size_t i = 0; i < trained_.size(); ++i) memories_[i].first = copy_of(optimizer_->state(trained_[i]));
  whole_ = whole_of(segment, layout, settings);
}

std::optional<Stepper::Whole> Stepper::whole_of(const std::shared_ptr<Segment>& segment, const Layout& layout,
                                                const detail::OptimizerSettings& settings) {
  const auto all = layout.whole();
  if (!all || all->begins.size() < 2 || all->place.bytes > most_bytes_of_whole) return {};
  // Kernels for shorter types round elsewhere at the end of a tensor than in the middle.
  if (all->place.type != c10::ScalarType::Float && all->place.type != c10::ScalarType::Double) return {};
  Whole whole;
  whole.values = Segment::view(segment, all->place.offset, all->place);
  for (const auto& [name, offset] : all->place.remembered) {
    whole.remembered.emplace(name, Segment::view(segment, offset, all->place));
  }
  if (layout.moving_average() > 0) whole.average = Segment::view(segment, all->place.average, all->place);
  whole.values.mutable_grad() = at::zeros_like(whole.values);  // Zeros they stay in the gaps.
  auto* const gradient = static_cast<char*>(whole.values.grad().data_ptr());
  const size_t size = c10::elementSize(all->place.type);
  for (const int64_t begin : all->begins) whole.gradients.push_back(gradient + static_cast<size_t>(begin) * size);
  whole.optimizer = optim::make_optimizer(settings, {whole.values});
  return whole;
}

void Stepper::check(const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& buffers) const {
  FARAD_CHECK(gradients.size() == trained_.size(), "[shared] ", gradients.size(), " gradients for ", trained_.size(),
              " parameters");
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto& gradient = gradients[i];
    if (!gradient.defined()) continue;
    FARAD_CHECK(gradient.layout() == c10::kStrided && gradient.device().is_cpu(), "[shared] the gradient of \"",
                memories_[i].name, "\" is sparse or not on the CPU, which a model in shared memory cannot use");
    FARAD_CHECK(gradient.sizes() == trained_[i].sizes() && gradient.scalar_type() == trained_[i].scalar_type(),
                "[shared] the gradient of \"", memories_[i].name, "\" is of ", gradient.dtype(), gradient.sizes(),
                ", the parameter of ", trained_[i].dtype(), trained_[i].sizes());
  }
  FARAD_CHECK(buffers.empty() || buffers.size() == buffers_.size(), "[shared] ", buffers.size(), " buffers for ",
              buffers_.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto& [name, ours] = buffers_[i];
    FARAD_CHECK(
        !buffers[i].defined() || (buffers[i].sizes() == ours.sizes() && buffers[i].scalar_type() == ours.scalar_type()),
        "[shared] the buffer \"", name, "\" is of ", buffers[i].dtype(), buffers[i].sizes(), ", that of the model of ",
        ours.dtype(), ours.sizes());
  }
}

void Stepper::drop_own(std::vector<at::Tensor>& buffers) const {
  for (size_t i = 0; i < std::min(buffers.size(), buffers_.size()); ++i) {
    if (buffers[i].defined() && buffers[i].data_ptr() == buffers_[i].values.data_ptr()) buffers[i] = at::Tensor();
  }
}

void Stepper::put(const std::vector<at::Tensor>& buffers) const {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].defined()) buffers_[i].values.copy_(buffers[i]);
  }
}

void Stepper::step(const std::vector<at::Tensor>& gradients, double rate) {
  const c10::NoGradGuard no_grad;
  plain_ ? step_plainly(gradients, rate) : step_by_optimizer(gradients, rate);
  if (moving_average_ == 0) return;
  if (whole_) {
    whole_->average.mul_(moving_average_).add_(whole_->values, 1 - moving_average_);
    return;
  }
  for (size_t i = 0; i < trained_.size(); ++i) {
    memories_[i].average.mul_(moving_average_).add_(trained_[i], 1 - moving_average_);
  }
}

int64_t Stepper::count(const Memory& memory) {
  // By one instruction: where nothing is locked no count may be lost.
  auto before = memory.steps->load(std::memory_order_relaxed);
  while (!memory.steps->compare_exchange_weak(before, std::max<int64_t>(before, 1) + 1)) {
  }
  return before;
}

/// The kernel that libtorch's SGD ends up in, and so the same bits, without its way there: of a small model that way is
/// most of a step.
void Stepper::step_plainly(const std::vector<at::Tensor>& gradients, double rate) {
  const at::Scalar weight = -rate;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    count(memories_[i]);
    at::cpu::add_(trained_[i], gradients[i], weight);
  }
}

void Stepper::step_by_optimizer(const std::vector<at::Tensor>& gradients, double rate) {
  std::vector<int64_t> steps(gradients.size());
  bool together = whole_.has_value();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) steps[i] = count(memories_[i]);  // before anything else changes
    // The first step is not like the others, and parameters that were stepped less often are not like those beside.
    together = together && steps[i] > 0 && steps[i] == steps[0];
  }
  together ? step_whole(gradients, steps[0], rate) : step_each(gradients, steps, rate);
}

void Stepper::step_whole(const std::vector<at::Tensor>& gradients, int64_t steps, double rate) {
  auto& [places, values, average, remembered, optimizer, given] = *whole_;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto gradient = gradients[i].contiguous();
    if (gradient.numel() > 0) std::memcpy(places[i], gradient.data_ptr(), gradient.nbytes());
  }
  if (!remembered.empty() && !given) {
    optimizer->set_state(values, optim::ParameterState{remembered, steps - 1});
    given = true;
  } else if (!remembered.empty()) {
    optimizer->set_steps(values, steps - 1);
  }
  optimizer->step(rate);
}

void Stepper::step_each(const std::vector<at::Tensor>& gradients, const std::vector<int64_t>& steps, double rate) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    trained_[i].mutable_grad() = gradients[i];
    if (!gradients[i].defined()) continue;
    auto& memory = memories_[i];
    if (memory.remembered.empty()) continue;
    if (steps[i] == 0) {
      optimizer_->set_state(trained_[i], copy_of(memory.first));
      memory.given = false;
    } else if (!memory.given) {
      optimizer_->set_state(trained_[i], optim::ParameterState{memory.remembered, steps[i] - 1});
      memory.given = true;
    } else {
      optimizer_->set_steps(trained_[i], steps[i] - 1);  // The tensors are there: others change only what is in them.
    }
  }
  optimizer_->step(rate);
  for (size_t i = 0; i < gradients.size(); ++i) {
    trained_[i].mutable_grad() = at::Tensor();
    if (!gradients[i].defined() || steps[i] != 0 || memories_[i].remembered.empty()) continue;
    const auto state = optimizer_->state(trained_[i]);
    if (!state) continue;
    for (const auto& [name, tensor] : state->tensors) memories_[i].remembered.at(name).copy_(tensor);
  }
}

}  // namespace farad::shared
