#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <vector>

namespace farad::wire {

using Bytes = std::vector<char>;

/// What travels between two workers: a few numbers, encoded values, and tensors beside them.
/// `kind` and `tag` belong to the layer that sends; nothing below it looks at them.
struct Message {
  uint8_t kind = 0;
  uint64_t tag = 0;
  Bytes body;
  std::vector<at::Tensor> tensors;
};

}  // namespace farad::wire
