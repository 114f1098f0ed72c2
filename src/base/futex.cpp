#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace farad::base {
namespace {

uint32_t* address(std::atomic<uint32_t>& word) {
  static_assert(sizeof(word) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  return reinterpret_cast<uint32_t*>(&word);
}

}  // namespace

bool futex_wait(std::atomic<uint32_t>& word, uint32_t expected, TimePoint deadline, uint32_t sleepers) {
  timespec until{};
  timespec* limit = nullptr;
  if (deadline != never) {
    // FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC, which is what steady_clock counts on Linux.
    const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    until = {.tv_sec = since / 1'000'000'000, .tv_nsec = since % 1'000'000'000};
    limit = &until;
  }
  const long rc = syscall(SYS_futex, address(word), FUTEX_WAIT_BITSET, expected, limit, nullptr, sleepers);
  return !(rc == -1 && errno == ETIMEDOUT);
}

void futex_wake(std::atomic<uint32_t>& word, int count, uint32_t sleepers) {
  syscall(SYS_futex, address(word), FUTEX_WAKE_BITSET, count, nullptr, nullptr, sleepers);
}

}  // namespace farad::base
