#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/detail/value.h>

#include <memory>
#include <vector>

namespace farad::detail {

/// Encoded values, and the tensors and references among them: what a call takes there and brings back.
struct Packet {
  std::vector<char> body;
  std::vector<at::Tensor> tensors;
  std::vector<std::shared_ptr<RefHandle>> references;
  ValueLimits limits = {};  ///< of the worker whose call it is
};

}  // namespace farad::detail
