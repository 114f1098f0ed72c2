#include "shared/reader.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "shared/seats.h"

namespace farad::shared {
namespace {

constexpr int tries = 8;
/// For how long those who write without a lock are held up: a copy of 100 MB takes 20 ms.
constexpr auto moment = std::chrono::milliseconds(200);

/// Others may write there meanwhile. Whether they did is looked at before and after.
__attribute__((no_sanitize("thread"))) void copy_racing(char* to, const char* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

}  // namespace

base::Status Reader::copy(const std::vector<Part>& parts, Writer& writer, base::TimePoint deadline, Seen& seen) {
  auto& header = segment_->header();
  header.snapshots.fetch_add(1, std::memory_order_relaxed);
  for (int i = 0; i < tries; ++i) {
    if (try_copy(parts, seen)) return {};
    header.retries.fetch_add(1, std::memory_order_relaxed);
    ::sched_yield();
  }
  header.waits.fetch_add(1, std::memory_order_relaxed);
  if (!locked_) {
    if (copy_at_rest(parts, deadline, seen)) return {};
    seen = {header.books.version.load(), true};
    copy_all(parts);  // As it is: those who write have kept it from being copied at all.
    header.torn.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  return writer.alone([&] { (void)try_copy(parts, seen); }, deadline);
}

bool Reader::try_copy(const std::vector<Part>& parts, Seen& seen) const {
  auto& header = segment_->header();
  const uint64_t sequence = header.sequence.load(std::memory_order_acquire);
  const Writing before = locked_ ? Writing() : writing();
  if (sequence % 2 != 0 || before.some_live) return false;
  seen.version = header.books.version.load();
  seen.samples = header.books.samples.load();
  copy_all(parts);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (header.sequence.load(std::memory_order_relaxed) != sequence) return false;
  if (locked_) return true;
  // One that has begun since is seen at it, or has made another version, or was killed: then its seat is one more of
  // those that write, and if it has been taken again, then one more was cut off.
  const Writing after = writing();
  return !after.some_live && after.seats == before.seats && after.cut_off == before.cut_off &&
         header.books.version.load() == seen.version;
}

void Reader::copy_all(const std::vector<Part>& parts) const {
  for (const auto& part : parts) {
    if (part.bytes > 0) copy_racing(static_cast<char*>(part.to), segment_->values() + part.offset, part.bytes);
  }
}

Reader::Writing Reader::writing() const {
  const auto& header = segment_->header();
  Writing all;
  for (size_t i = 0; i < most_workers; ++i) {
    const auto& seat = header.seats[i];
    if (seat.writing.load() == 0) continue;
    all.seats.set(i);
    all.some_live = all.some_live || is_alive(seat);
  }
  all.cut_off = header.cut_off.load();
  return all;
}

/// Those who write are held up for a moment. Others may ask for one of their own meanwhile: the one that ends last is
/// noted, and who is done takes back only its own, which makes those whose moment is shorter ask again.
bool Reader::copy_at_rest(const std::vector<Part>& parts, base::TimePoint deadline, Seen& seen) const {
  auto& header = segment_->header();
  const auto end = std::min(deadline, base::Clock::now() + moment);
  const int64_t ours = nanoseconds(end);
  auto& pause = header.pause_until;
  bool whole = false;
  while (!whole && base::Clock::now() < end) {
    for (int64_t asked = pause.load(); asked < ours && !pause.compare_exchange_weak(asked, ours);) {
    }
    whole = try_copy(parts, seen);
    if (!whole) ::sched_yield();
  }
  int64_t asked = ours;
  pause.compare_exchange_strong(asked, 0);
  return whole;
}

}  // namespace farad::shared
