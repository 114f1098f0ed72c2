#pragma once

#include <ATen/core/TensorBody.h>

#include <memory>
#include <vector>

namespace farad::detail {

/// One worker's share of a value that lives on one worker; see rref.h.
class RefHandle;

/// Encoded values, and the tensors and references among them: what a call takes there and brings back.
struct Packet {
  std::vector<char> body;
  std::vector<at::Tensor> tensors;
  std::vector<std::shared_ptr<RefHandle>> references;
};

}  // namespace farad::detail
