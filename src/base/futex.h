#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace farad::base {

/// The kernel's compare-and-sleep. The words may lie in memory that several processes map, so none of these calls uses
/// the process-private form. A bit set lets two kinds of sleepers share a word and be woken apart.
inline constexpr uint32_t any_sleeper = ~0u;

/// Sleeps while the word holds `expected`. False if the deadline passed; true otherwise, also without cause.
bool futex_wait(std::atomic<uint32_t>& word, uint32_t expected, TimePoint deadline, uint32_t sleepers = any_sleeper);
void futex_wake(std::atomic<uint32_t>& word, int count, uint32_t sleepers = any_sleeper);

}  // namespace farad::base
