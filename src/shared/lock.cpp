#include "shared/lock.h"

#include <linux/futex.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include "base/relax.h"

namespace farad::shared {
namespace {

/// To wake one that waits takes up to 50 us; beyond this it is not about to come.
constexpr auto courtesy = std::chrono::microseconds(200);
/// An update of a small model takes about 5 us, and to sleep and be woken several times that: it pays to look a few
/// times first.
constexpr auto glance = std::chrono::microseconds(20);

timespec to_timespec(base::TimePoint when) {
  // steady_clock is CLOCK_MONOTONIC.
  const auto since = when.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  return {seconds.count(), std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count()};
}

}  // namespace

void Lock::prepare() {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&mutex_, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  turns_.store(0);
}

base::Status Lock::acquire(Manners& manners, base::TimePoint deadline, bool& abandoned) {
  if (manners.others_wait) let_others_go_first(manners);
  int result = try_for_a_while();
  if (result == EBUSY) {
    if (deadline == base::never) {
      result = ::pthread_mutex_lock(&mutex_);
    } else {
      const auto until = to_timespec(deadline);
      result = ::pthread_mutex_clocklock(&mutex_, CLOCK_MONOTONIC, &until);
    }
  }
  if (result == ETIMEDOUT) return {base::Code::Timeout, "[shared] another process did not let go of the model in time"};
  if (result != 0 && result != EOWNERDEAD) {
    return {base::Code::Invalid, std::string("[shared] the lock of the model: ") + std::strerror(result)};
  }
  abandoned = result == EOWNERDEAD;
  if (abandoned) ::pthread_mutex_consistent(&mutex_);
  manners.turn = turns_.fetch_add(1, std::memory_order_relaxed) + 1;
  return {};
}

void Lock::release(Manners& manners) {
  manners.others_wait = somebody_waits();
  ::pthread_mutex_unlock(&mutex_);
}

int Lock::try_for_a_while() {
  const int result = ::pthread_mutex_trylock(&mutex_);
  if (result != EBUSY) return result;
  for (const auto end = base::Clock::now() + glance; base::Clock::now() < end;) {
    if (!is_taken()) return ::pthread_mutex_trylock(&mutex_);  // Who comes between has it for another while.
    base::relax();
  }
  return EBUSY;
}

/// That of the kernel, which needs no count of ours that one who is killed could leave wrong.
uint32_t Lock::word() const { return static_cast<uint32_t>(__atomic_load_n(&mutex_.__data.__lock, __ATOMIC_RELAXED)); }

bool Lock::is_taken() const { return (word() & FUTEX_TID_MASK) != 0; }

bool Lock::somebody_waits() const { return (word() & FUTEX_WAITERS) != 0; }

void Lock::let_others_go_first(const Manners& manners) const {
  const auto enough = base::Clock::now() + courtesy;
  while (turns_.load(std::memory_order_relaxed) == manners.turn && base::Clock::now() < enough) ::sched_yield();
}

}  // namespace farad::shared
