#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/detail/value.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace farad::detail {

/// Encoded values, and the tensors and references among them: what a call takes there and brings back.
struct Packet {
  std::vector<char> body;
  std::vector<at::Tensor> tensors;
  std::vector<std::shared_ptr<RefHandle>> references;
  ValueLimits limits = {};  ///< of the worker whose call it is

  /// What is small fits into this, so that writing it takes memory once.
  static constexpr size_t usual_bytes = 32;
};

}  // namespace farad::detail
