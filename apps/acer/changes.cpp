#include "acer/changes.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace farad::acer {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);

// std::atomic's own wait() only knows of waiters in the same process.
void Changes::wait(uint32_t before, std::chrono::milliseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec time{seconds.count(), std::chrono::nanoseconds(at_most - seconds).count()};
  ::syscall(SYS_futex, &count_, FUTEX_WAIT, before, &time, nullptr, 0);
}

void Changes::announce() {
  count_.fetch_add(1);
  ::syscall(SYS_futex, &count_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace farad::acer
