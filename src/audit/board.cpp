#include "audit/board.h"

#include <ATen/ops/from_blob.h>
#include <farad/error.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>
#include <utility>

#include "base/futex.h"

namespace farad::audit {
namespace {

constexpr uint64_t least_samples = 20;
constexpr uint64_t specials = 4;
constexpr uint32_t free = 0, taken = 1, waited_for = 2;  // of the lock

}  // namespace

Board::Board(const Shape& shape) : shape_(shape) {
  const auto workers = static_cast<uint64_t>(shape.workers), rounds = static_cast<uint64_t>(shape.rounds);
  const uint64_t updates = workers * rounds;
  const uint64_t bytes_each = static_cast<uint64_t>(shape.elements) * c10::elementSize(shape.type);
  const uint64_t affordable = std::max(least_samples, most_kept_bytes / std::max<uint64_t>(1, 5 * bytes_each));
  const uint64_t affordable_rounds = (affordable + workers - 1) / workers;
  stride_ = (rounds + affordable_rounds - 1) / affordable_rounds;
  samples_ = workers * ((rounds + stride_ - 1) / stride_);
  capacity_ = 2 * updates + static_cast<uint64_t>(shape.workers);

  size_t at = 0;
  const auto reserve = [&](size_t bytes) { return std::exchange(at, (at + bytes + 63) / 64 * 64); };
  const size_t head = reserve(sizeof(Head));
  const size_t sent = reserve(updates * sizeof(SentRow));
  const size_t applied = reserve(capacity_ * sizeof(AppliedRow));
  const size_t joined = reserve(static_cast<size_t>(shape.workers) * sizeof(Joined));
  const size_t delivered = reserve(static_cast<size_t>(shape.workers) * deliveries() * sizeof(uint64_t));
  const size_t values = reserve((fixed() + specials + static_cast<uint64_t>(shape.workers)) * bytes_each);
  bytes_ = at;
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error("[audit] " + std::to_string(bytes_) + " bytes to record in: " + std::strerror(errno));
  }
  memory_ = static_cast<char*>(memory);
  head_ = new (memory_ + head) Head{};
  sent_ = reinterpret_cast<SentRow*>(memory_ + sent);
  applied_ = reinterpret_cast<AppliedRow*>(memory_ + applied);
  joined_ = reinterpret_cast<Joined*>(memory_ + joined);
  delivered_ = reinterpret_cast<uint64_t*>(memory_ + delivered);
  values_ = memory_ + values;
}

Board::~Board() { ::munmap(memory_, bytes_); }

void Board::meet(uint32_t& turn) {
  const uint32_t all = ++turn * static_cast<uint32_t>(shape_.workers);
  auto& arrivals = head_->arrivals;
  if (arrivals.fetch_add(1) + 1 == all) base::futex_wake(arrivals, INT_MAX);
  for (uint32_t seen; (seen = arrivals.load()) < all;) base::futex_wait(arrivals, seen, base::never);
}

void Board::lock() {
  uint32_t seen = free;
  if (head_->locked.compare_exchange_strong(seen, taken)) return;
  while (head_->locked.exchange(waited_for) != free) base::futex_wait(head_->locked, waited_for, base::never);
}

void Board::unlock() {
  if (head_->locked.exchange(free) == waited_for) base::futex_wake(head_->locked, 1);
}

Board::AppliedRow& Board::append() {
  const uint64_t index = head_->appended.fetch_add(1);
  if (index >= capacity_) throw Error("[audit] more than twice as many updates were applied as gradients were sent");
  return applied_[index];
}

uint64_t Board::applied() const { return std::min(head_->appended.load(), capacity_); }

uint64_t Board::take_slot() {
  const uint64_t slot = head_->slots.fetch_add(1) + 1;
  return slot <= slots() ? slot : 0;
}

int Board::worker_at(int seat) const {
  for (int worker = 0; worker < shape_.workers; ++worker) {
    if (joined_[worker].seat == seat) return worker;
  }
  throw Error("[audit] an update by a process that is none of the workers");
}

at::Tensor Board::place(uint64_t index) {
  const uint64_t bytes_each = static_cast<uint64_t>(shape_.elements) * c10::elementSize(shape_.type);
  return at::from_blob(values_ + index * bytes_each, {shape_.elements}, at::TensorOptions(shape_.type));
}

}  // namespace farad::audit
