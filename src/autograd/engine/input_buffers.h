#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <vector>

namespace farad::autograd {

/// What has come to each input of each node of a pass.
///
/// Floating-point sums depend on their order, and the order in which nodes run on that in which messages come. If asked
/// to, the buffers keep the summands apart until they are taken, and then add them by the links that they came by.
class InputBuffers {
 public:
  /// A gradient that came by no link, but from outside. Added before all others.
  static constexpr uint32_t outside = 0;
  static constexpr uint32_t by_link(size_t link) { return static_cast<uint32_t>(link) + 1; }

  InputBuffers(uint32_t inputs, bool fixed_order);

  /// `gradient` is defined.
  void add(uint32_t input, uint32_t by, at::Tensor gradient);
  /// Undefined if nothing was added.
  at::Tensor take(uint32_t input) {
    if (!parts_.empty()) add_up(input);
    return std::move(sums_[input]);
  }

 private:
  struct Part {
    uint32_t by;
    at::Tensor gradient;
  };
  void add_up(uint32_t input);

  std::vector<at::Tensor> sums_;
  std::vector<std::vector<Part>> parts_;  // by input; none at all if any order will do
};

}  // namespace farad::autograd
