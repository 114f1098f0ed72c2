#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>

#include "base/status.h"

namespace farad::wire {

/// Where two workers share memory, a large tensor's data need not go through the stream: the frame holds a handle to
/// memory that both can reach. What is in it means something to the two sides' Lender and Borrower only.
struct Handle {
  static constexpr size_t bytes = 16;
  uint64_t block = 0;
  uint64_t meaning = 0;
};

class Lender {
 public:
  virtual ~Lender() = default;

  /// Smaller tensors are quicker through the stream.
  virtual uint64_t least_bytes() const = 0;
  /// Puts the data of `tensor`, a dense block, where the other side finds it; false if there is no room, and nothing
  /// has happened. `tensor` is the message's own and only handle: if nobody else has one (see hand_over.h), its memory
  /// itself may be given away, and must not be read through `tensor` any more.
  virtual bool lend(const at::Tensor& tensor, uint64_t data_bytes, Handle& handle) = 0;
};

class Borrower {
 public:
  virtual ~Borrower() = default;
  /// The memory behind a handle that the other side sent, at least `data_bytes` of it. Protocol if there is none,
  /// Invalid if there is and we lack something to reach it.
  virtual base::Status borrow(const Handle& handle, uint64_t data_bytes, at::DataPtr& out) = 0;
};

}  // namespace farad::wire
