#include "autograd/engine/input_buffers.h"

#include <algorithm>
#include <utility>

#include "autograd/engine/accumulate.h"

namespace farad::autograd {

InputBuffers::InputBuffers(uint32_t inputs, bool fixed_order) : sums_(inputs), parts_(fixed_order ? inputs : 0) {}

void InputBuffers::add(uint32_t input, uint32_t by, at::Tensor gradient) {
  if (!parts_.empty()) {
    parts_[input].push_back({by, std::move(gradient)});
  } else if (!sums_[input].defined()) {
    sums_[input] = std::move(gradient);
  } else {
    accumulate(sums_[input], std::move(gradient));
  }
}

void InputBuffers::add_up(uint32_t input) {
  auto parts = std::move(parts_[input]);
  // Stable: what came from outside is added as it came.
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.by < b.by; });
  for (Part& part : parts) accumulate(sums_[input], std::move(part.gradient));
}

}  // namespace farad::autograd
