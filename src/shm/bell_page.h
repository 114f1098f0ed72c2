#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "shm/memory.h"

namespace farad::shm {

/// The page through which other processes wake a worker, see that it lives, and say which connection they mean.
/// Every peer on the machine maps it; all of them may write, so nothing here is trusted further than to wake up and
/// look.
struct BellPage {
  static constexpr size_t bytes = 4096;
  static constexpr int slot_words = 16;
  static constexpr int slots = slot_words * 64;  // Connections one worker can have through shared memory.

  // Bits of `state`.
  static constexpr uint32_t rung = 1;      // since the driver last looked
  static constexpr uint32_t asleep = 2;    // the driver sleeps
  static constexpr uint32_t vacant = 4;    // nobody drives: wake the resident
  static constexpr uint32_t in_epoll = 8;  // sleepers wait in epoll: write to the eventfd instead of waking the futex

  // Kinds of futex sleepers on `state`, so that they can be woken apart.
  static constexpr uint32_t driver_sleeper = 1;
  static constexpr uint32_t resident_sleeper = 2;

  alignas(64) std::atomic<uint32_t> state;
  std::atomic<uint32_t> ringer_cpu;                         // where whoever rang last ran
  alignas(64) std::atomic<uint64_t> slot_bits[slot_words];  // connections with news
  alignas(64) std::atomic<uint64_t> beats;                  // grows while the worker runs; a stopped process's does not

  /// Wakes whoever should look. What it is about must have been stored before.
  void ring(int eventfd);
  /// Marks a connection, then rings.
  void ring_slot(int slot, int eventfd);
};

static_assert(sizeof(BellPage) <= BellPage::bytes);

}  // namespace farad::shm
