#include "shm/ring.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

namespace farad::shm {
namespace {

constexpr uint64_t not_grown = UINT64_MAX;

char* base_of(Memory* memory, size_t offset) { return static_cast<char*>(memory->data()) + offset; }

SeenByTsan order_of_written(const Memory& memory, size_t offset) {
  return {memory, offset + offsetof(RingState, written)};
}

SeenByTsan order_of_read(const Memory& memory, size_t offset) { return {memory, offset + offsetof(RingState, read)}; }

}  // namespace

base::Status RingWriter::prepare(Memory& memory, size_t offset) {
  if (auto s = memory.reserve(offset, RingLayout::state_bytes + RingLayout::small_bytes); !s.ok()) return s;
  auto* state = new (base_of(&memory, offset)) RingState{};
  state->grown_at.store(not_grown);
  return {};
}

RingWriter::RingWriter(Memory* memory, size_t offset)
    : memory_(memory),
      offset_(offset),
      state_(reinterpret_cast<RingState*>(base_of(memory, offset))),
      small_(base_of(memory, offset) + RingLayout::state_bytes),
      large_(small_ + RingLayout::small_bytes),
      written_order_(order_of_written(*memory, offset)),
      read_order_(order_of_read(*memory, offset)) {}

size_t RingWriter::room() {
  const bool grown = grown_at_ != not_grown;
  const uint64_t capacity = grown ? RingLayout::large_bytes : RingLayout::small_bytes;
  // The reader only moves forward and never past us; a mad one makes us wait or overwrite its own bytes, no more.
  const uint64_t read = std::min(std::max(read_seen_, grown ? grown_at_ : 0), written_);
  return capacity - std::min(capacity, written_ - read);
}

char* RingWriter::at(uint64_t position, size_t& contiguous) const {
  if (position < grown_at_) {
    const size_t index = position & (RingLayout::small_bytes - 1);
    contiguous = RingLayout::small_bytes - index;
    return small_ + index;
  }
  const size_t index = (position - grown_at_) & (RingLayout::large_bytes - 1);
  contiguous = RingLayout::large_bytes - index;
  return large_ + index;
}

void RingWriter::grow() {
  if (grown_at_ != not_grown) return;
  const size_t large_at = offset_ + RingLayout::state_bytes + RingLayout::small_bytes;
  if (!memory_->reserve(large_at, RingLayout::large_bytes).ok()) return;  // No memory to spare: it works as it is.
  grown_at_ = written_;
  state_->grown_at.store(grown_at_, std::memory_order_relaxed);  // Published by the next `written`.
}

size_t RingWriter::write(std::span<const iovec> pieces) {
  size_t wanted = 0;
  for (const auto& piece : pieces) wanted += piece.iov_len;
  if (room() < wanted) {
    read_seen_ = state_->read.load(std::memory_order_acquire);
    read_order_.after_load();
    if (room() < wanted) grow();
  }
  size_t left = std::min(room(), wanted);
  const size_t total = left;
  for (const auto& piece : pieces) {
    const char* from = static_cast<const char*>(piece.iov_base);
    size_t bytes = std::min(piece.iov_len, left);
    left -= bytes;
    while (bytes > 0) {
      size_t contiguous = 0;
      char* to = at(written_, contiguous);
      const size_t n = std::min(bytes, contiguous);
      std::memcpy(to, from, n);
      from += n;
      bytes -= n;
      written_ += n;
    }
  }
  if (total > 0) {
    written_order_.before_store();
    state_->written.store(written_, std::memory_order_release);
  }
  return total;
}

bool RingWriter::wait_for_room() {
  state_->writer_waits.store(1, std::memory_order_seq_cst);
  read_seen_ = state_->read.load(std::memory_order_seq_cst);
  read_order_.after_load();
  const size_t capacity = grown_at_ != not_grown ? RingLayout::large_bytes : RingLayout::small_bytes;
  // The reader only rings once half is free (see consume), so that both sides work at once on a long message; if that
  // is so already, it may have looked before we asked.
  if (room() < capacity / 2) return true;
  if (!watching_) state_->writer_waits.store(0, std::memory_order_relaxed);
  return false;
}

uint64_t RingWriter::read() const {
  const uint64_t read = state_->read.load(std::memory_order_seq_cst);
  read_order_.after_load();
  return std::min(read, written_);
}

void RingWriter::watch_reader(bool watch) {
  watching_ = watch;
  if (watch) state_->writer_waits.store(1, std::memory_order_seq_cst);
}

RingReader::RingReader(Memory* memory, size_t offset)
    : state_(reinterpret_cast<RingState*>(base_of(memory, offset))),
      small_(base_of(memory, offset) + RingLayout::state_bytes),
      large_(small_ + RingLayout::small_bytes),
      written_order_(order_of_written(*memory, offset)),
      read_order_(order_of_read(*memory, offset)) {}

base::Status RingReader::peek(std::span<const char>& bytes) {
  if (read_ == written_seen_) {
    const uint64_t written = state_->written.load(std::memory_order_acquire);
    written_order_.after_load();
    if (grown_at_ == not_grown) {
      grown_at_ = state_->grown_at.load(std::memory_order_relaxed);
      if (grown_at_ < read_) return {base::Code::Protocol, "[shm] a ring that grew in the past"};
    }
    if (written < written_seen_ || written - read_ > RingLayout::small_bytes + RingLayout::large_bytes) {
      return {base::Code::Protocol, "[shm] a ring with " + std::to_string(written) + " bytes written, of which " +
                                        std::to_string(read_) + " were read"};
    }
    written_seen_ = written;
  }
  size_t available = written_seen_ - read_;
  if (read_ < grown_at_) {
    const size_t index = read_ & (RingLayout::small_bytes - 1);
    available = std::min<uint64_t>({available, RingLayout::small_bytes - index, grown_at_ - read_});
    bytes = {small_ + index, available};
  } else {
    const size_t index = (read_ - grown_at_) & (RingLayout::large_bytes - 1);
    available = std::min<uint64_t>(available, RingLayout::large_bytes - index);
    bytes = {large_ + index, available};
  }
  return {};
}

bool RingReader::consume(size_t n) {
  read_ += n;
  read_order_.before_store();
  state_->read.store(read_, std::memory_order_seq_cst);
  if (state_->writer_waits.load(std::memory_order_seq_cst) == 0) return false;
  const uint64_t capacity = grown_at_ != not_grown ? RingLayout::large_bytes : RingLayout::small_bytes;
  const uint64_t held =
      state_->written.load(std::memory_order_relaxed) - std::max(read_, grown_at_ != not_grown ? grown_at_ : 0);
  if (held > capacity / 2 && held <= capacity) return false;
  return state_->writer_waits.exchange(0) != 0;
}

}  // namespace farad::shm
