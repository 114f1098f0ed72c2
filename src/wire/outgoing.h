#pragma once

#include <c10/util/SmallVector.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <list>
#include <vector>

#include "base/status.h"
#include "wire/lending.h"
#include "wire/limits.h"
#include "wire/message.h"

namespace farad::wire {

/// A message on its way into any byte stream: one frame of docs/design/wire_format.md. Tensor data is written from
/// where it lies; what says that it was not changed meanwhile is the frame's last word, so a message whose tensors
/// were changed is taken back instead of being delivered.
///
/// Used by one thread at a time.
class Outgoing {
 public:
  /// Nothing to write: done().
  Outgoing() = default;
  Outgoing(Outgoing&& other) noexcept : state_(std::move(other.state_)) { other.state_ = {}; }
  Outgoing& operator=(Outgoing&& other) noexcept {
    state_ = std::move(other.state_);
    other.state_ = {};
    return *this;
  }

  /// Checks the limits and that every tensor can travel. On failure `message` is untouched and `out` unchanged; on
  /// success the message is taken. Tensors that are no dense block of memory (views with gaps, expanded, conjugated)
  /// are copied here, the others not. With a `lender`, large ones do not go through the stream but by handle.
  static base::Status make(Message& message, const Limits& limits, Outgoing& out, Lender* lender = nullptr);
  /// The same checks for whoever moves messages by other means, and how long the frame would be.
  static base::Status check(const Message& message, const Limits& limits, uint64_t& frame_bytes);

  bool done() const { return state_.written == state_.size; }
  /// The whole frame, in bytes.
  uint64_t size() const { return state_.size; }
  /// What a lender took beside it, in bytes.
  uint64_t lent_bytes() const { return state_.lent; }
  uint64_t remaining() const { return state_.size - state_.written; }
  uint8_t kind() const { return state_.kind; }
  uint64_t tag() const { return state_.tag; }
  /// The message without its tensors, for whoever sent one that was taken back.
  Message stub() const;

  /// The next bytes to write, in order, in at most `count` slots; the number of slots used, 0 only if done(). They
  /// stay valid until the next call of another member. Need not be all that remains: gather again after advance().
  int gather(iovec* slots, int count) const;
  /// The first `n` bytes that gather() gave were written.
  void advance(uint64_t n);

  /// To be called once, when the frame could not be written at once and its owner may go on meanwhile: from now on a
  /// change to a tensor's memory is noticed, by its version counter. Tensors nobody else refers to need no watch.
  void hold();
  /// Ok, unless a tensor changed after hold() and before its last byte was written; then the frame ends in a trailer
  /// that takes the message back. Final once the last byte of tensor data is written.
  const base::Status& verdict() const { return state_.verdict; }

 private:
  struct Segment {
    const char* data;
    uint64_t bytes;
    uint32_t tensor;     // its place in the message
    int32_t watch = -1;  // its place in `watches`
  };
  struct Watch {
    at::Tensor tensor;
    c10::Storage storage;  // keeps the memory if the tensor is set to other memory
    const void* data;
    uint32_t version;
    uint32_t index;  // of the tensor in the message
  };
  struct State {
    uint64_t size = 0;
    uint64_t written = 0;
    uint64_t payload = 0;
    uint64_t lent = 0;
    size_t segment = 0;  // the first one that is not written
    uint64_t segment_written = 0;
    uint64_t tag = 0;
    uint8_t kind = 0;
    bool held = false;
    bool forgotten = false;
    uint32_t body_bytes = 0;           // the end of `head`
    c10::SmallVector<char, 256> head;  // header, table and body
    c10::SmallVector<Segment, 4> segments;
    c10::SmallVector<at::Tensor, 2> owners;              // of the segments' memory, one each; undefined for handles
    std::list<std::array<char, Handle::bytes>> handles;  // of what is lent; segments point into it
    std::vector<Watch> watches;
    base::Status verdict;
  };

  uint64_t payload_end() const { return state_.head.size() + state_.payload; }
  void take_verdict();
  bool memory_moved(const Watch&) const;

  State state_;
};

}  // namespace farad::wire
