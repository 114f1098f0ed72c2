#pragma once

#include <ATen/core/TensorBody.h>

#include <vector>

namespace farad::detail {

/// Encoded values and the tensors among them: what a call takes there and brings back.
struct Packet {
  std::vector<char> body;
  std::vector<at::Tensor> tensors;
};

}  // namespace farad::detail
