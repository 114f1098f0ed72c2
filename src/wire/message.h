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
  /// Where they belong, one for each: tensors of a device lie on the host while they travel (see device.h). Empty if
  /// all are of the host.
  std::vector<c10::Device> devices = {};
  /// Its sender cannot know when it has gone, and may change the tensors at once: what must wait is copied.
  bool forgotten = false;
};

}  // namespace farad::wire
