#pragma once

#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "wire/buffer_pool.h"
#include "wire/frame.h"
#include "wire/limits.h"
#include "wire/message.h"
#include "wire/tensor_spec.h"

namespace farad::wire {

/// Messages being put together from a byte stream, one after the other. The stream is read straight into the memory
/// where the bytes will stay:
///
///     while (!incoming.complete()) {
///       const auto span = incoming.target();
///       auto status = incoming.filled(read(span.data(), span.size()));  // final if not ok
///     }
///     auto message = incoming.take();
///
/// Whatever the bytes are, lengths beyond the limits are refused before memory is taken for them, and memory for
/// lengths within the limits is touched only as bytes arrive. Used by one thread at a time.
class Incoming {
 public:
  Incoming(const Limits& limits, std::shared_ptr<BufferPool> pool);
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  /// Who knows the memory that lent tensors lie in; without one they are refused. Must outlive what is read.
  void borrow_from(Borrower* borrower) { borrower_ = borrower; }

  /// Where the next bytes belong; never empty while !complete(), unless an error was returned.
  std::span<char> target() { return {next_, left_}; }
  /// The first `n` bytes of target() were written. Each part is checked as soon as it is whole. An error is final:
  /// the stream cannot be read any further.
  base::Status filled(size_t n);

  bool complete() const { return stage_ == Stage::Complete; }
  /// complete(), but its sender took it back: take() and drop it.
  bool torn() const { return torn_; }
  /// The message, which must be complete(); and ready for the next frame.
  Message take();

  /// For streams that come through a buffer: copies from `bytes` until a message is complete or they are used up.
  base::Status feed(std::span<const char> bytes, size_t& consumed);

 private:
  enum class Stage { Header, Table, Body, Payload, Trailer, Complete, Failed };

  /// Goes on to the next stage that waits for bytes.
  base::Status part_is_whole();
  base::Status begin_table();
  base::Status begin_body();
  base::Status grow_body();
  base::Status begin_payload();
  base::Status next_tensor();
  base::Status borrow();
  base::Status begin_trailer();
  base::Status finish();

  base::Status wait_for(Stage stage, char* data, size_t bytes);
  base::Status fail(base::Status why);
  base::Status refuse(const std::string& why);
  base::Status refuse_tensor(size_t index, const std::string& complaint);

  const Limits limits_;
  const std::shared_ptr<BufferPool> pool_;
  Borrower* borrower_ = nullptr;

  std::array<char, frame::header_bytes> fixed_{};  // the header, then handles, at last the trailer
  Stage stage_ = Stage::Header;
  char* next_ = nullptr;  // where the rest of the current part belongs
  size_t left_ = 0;
  bool torn_ = false;
  base::Status failure_;

  frame::Header header_;
  c10::SmallVector<char, 256> table_;
  std::vector<TensorSpec> specs_;
  struct Memory {
    at::DataPtr indices, values;
  };
  std::vector<Memory> memory_;    // of the tensors begun so far
  bool reading_indices_ = false;  // of the last one, rather than values
  bool reading_handle_ = false;   // likewise
  Message message_;
};

}  // namespace farad::wire
