#include "shm/lifeline.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "base/futex.h"

namespace farad::shm {

void Lifeline::prepare() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

base::Status Lifeline::hold() {
  const int rc = pthread_mutex_trylock(&mutex_);
  if (rc == 0) return {};
  if (rc == EOWNERDEAD) release();  // We have it all the same, and this thread must not go on having it.
  return {base::Code::Protocol, "[shm] a lifeline that should be free is not (" + std::to_string(rc) + ")"};
}

void Lifeline::release() { pthread_mutex_unlock(&mutex_); }

std::atomic<uint32_t>& Lifeline::word() {
  // The lock word of the C library's robust mutex; its bits are part of the kernel's interface.
  return *reinterpret_cast<std::atomic<uint32_t>*>(&mutex_.__data.__lock);
}

bool Lifeline::broken() { return word().load(std::memory_order_acquire) & FUTEX_OWNER_DIED; }

void Lifeline::wait_for_any(std::span<Lifeline* const> watched, std::atomic<uint32_t>& doorbell, uint32_t expected,
                            base::TimePoint deadline) {
  std::array<futex_waitv, most + 1> words{};
  auto add = [&, count = 0](std::atomic<uint32_t>& word, uint32_t value) mutable {
    words[count].val = value;
    words[count].uaddr = reinterpret_cast<uintptr_t>(&word);
    words[count].flags = FUTEX_32;
    return ++count;
  };
  int count = add(doorbell, expected);
  for (Lifeline* line : watched.first(std::min(watched.size(), most))) {
    auto& word = line->word();
    uint32_t value = word.load();
    // The kernel only wakes us if this bit says that somebody waits.
    while ((value & FUTEX_TID_MASK) && !(value & FUTEX_WAITERS)) {
      if (word.compare_exchange_weak(value, value | FUTEX_WAITERS)) value |= FUTEX_WAITERS;
    }
    if (value & FUTEX_OWNER_DIED) return;
    if (value & FUTEX_TID_MASK) count = add(word, value);  // A released one says nothing any more.
  }
  const auto until = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
  timespec limit{.tv_sec = until / 1'000'000'000, .tv_nsec = until % 1'000'000'000};
  const long rc =
      ::syscall(SYS_futex_waitv, words.data(), count, 0, deadline == base::never ? nullptr : &limit, CLOCK_MONOTONIC);
  // Before Linux 5.16 there is no such call. The end of the peer's socket tells then, at the caller's next look.
  if (rc == -1 && errno == ENOSYS) base::futex_wait(doorbell, expected, deadline);
}

}  // namespace farad::shm
