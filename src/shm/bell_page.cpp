#include "shm/bell_page.h"

#include <sched.h>

#include "base/futex.h"

namespace farad::shm {

void BellPage::ring(int eventfd) {
  const uint32_t before = state.fetch_or(rung, std::memory_order_seq_cst);
  if (before & rung) return;  // Whoever rang first woke the sleeper.
  if (!(before & (asleep | vacant))) return;
  if (before & in_epoll) {
    const uint64_t one = 1;
    // Full means that it is readable already, which is all we want.
    [[maybe_unused]] const ssize_t n = ::write(eventfd, &one, sizeof(one));
    return;
  }
  base::futex_wake(state, 1, before & asleep ? driver_sleeper : resident_sleeper);
}

void BellPage::ring_slot(int slot, int eventfd) {
  const uint64_t bit = uint64_t{1} << (slot % 64);
  auto& word = slot_bits[slot / 64];
  // A bit that is still set will be looked at by a driver that has not cleared `rung` since: it was rung for.
  word.fetch_or(bit, std::memory_order_seq_cst);
  const auto cpu = static_cast<uint32_t>(::sched_getcpu());
  if (ringer_cpu.load(std::memory_order_relaxed) != cpu) ringer_cpu.store(cpu, std::memory_order_relaxed);
  ring(eventfd);
}

}  // namespace farad::shm
