#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "shm/memory.h"
#include "shm/seen_by_tsan.h"

namespace farad::shm {

/// The state of one direction of a byte stream through shared memory, as both sides see it. Positions only grow.
/// Either side may be gone or mad: what is read here is copied out before it is judged.
struct RingState {
  alignas(64) std::atomic<uint64_t> written;  // by the writer
  std::atomic<uint64_t> grown_at;             // by the writer: from this position on bytes lie in the large area
  alignas(64) std::atomic<uint64_t> read;     // by the reader
  alignas(64) std::atomic<uint32_t> writer_waits;
};

/// Bytes of a ring: a small area, set aside at once, so that many connections fit; and a large one that costs memory
/// only from the first time a writer found the small one full.
struct RingLayout {
  static constexpr size_t state_bytes = 4096;
  static constexpr size_t small_bytes = 64 << 10;
  static constexpr size_t large_bytes = 4 << 20;
  static constexpr size_t total = state_bytes + small_bytes + large_bytes;
};

/// The writing end. One thread at a time.
class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(Memory* memory, size_t offset);
  /// Sets the small area aside and writes the first state; by whoever made the memory.
  static base::Status prepare(Memory& memory, size_t offset);

  /// Copies as much as fits and makes it visible. How many bytes that was.
  size_t write(std::span<const iovec> pieces);
  /// Asks to be told when there is room again. False if there is some now: write again instead.
  bool wait_for_room();

  /// Bytes written so far, and those of them that the reader is done with.
  uint64_t written() const { return written_; }
  uint64_t read() const;
  /// Asks to be told when the reader has moved on, whether there is room or not. Whoever was told asks again, or says
  /// that it need not be told any more. What read() says after asking is news that may not be told.
  void watch_reader(bool watch);

 private:
  size_t room();
  void grow();
  char* at(uint64_t position, size_t& contiguous) const;

  Memory* memory_ = nullptr;
  size_t offset_ = 0;
  RingState* state_ = nullptr;
  char* small_ = nullptr;
  char* large_ = nullptr;
  uint64_t written_ = 0;
  uint64_t grown_at_ = UINT64_MAX;
  bool watching_ = false;
  uint64_t read_seen_ = 0;  // Spares a look at the reader's cache line while there is room anyway.
  SeenByTsan written_order_, read_order_;
};

/// The reading end. One thread at a time.
class RingReader {
 public:
  RingReader() = default;
  RingReader(Memory* memory, size_t offset);

  /// What can be read without a break; empty if nothing is there. A Protocol error if the other side's numbers make no
  /// sense.
  base::Status peek(std::span<const char>& bytes);
  /// Done with the first n bytes of what peek() showed. True if the writer asked to be told and should be now.
  bool consume(size_t n);

 private:
  RingState* state_ = nullptr;
  const char* small_ = nullptr;
  const char* large_ = nullptr;
  uint64_t read_ = 0;
  uint64_t written_seen_ = 0;
  uint64_t grown_at_ = UINT64_MAX;
  SeenByTsan written_order_, read_order_;
};

}  // namespace farad::shm
