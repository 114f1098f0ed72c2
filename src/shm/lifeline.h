#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/status.h"

namespace farad::shm {

/// Tells other processes that we ended, however we ended: a robust lock in shared memory that one of our threads holds
/// while it lives. The kernel lets go of it before it takes the process's memory apart, so a kill -9 is known within
/// milliseconds; the end of a socket, which comes after that, took 180 ms for a process of 4 GiB.
class Lifeline {
 public:
  /// Before anybody may hold or watch it.
  void prepare();

  /// By the thread whose end is to be told; release() by the same one. Never waits: a lifeline that is not free is one
  /// that somebody else has tampered with, and an error.
  base::Status hold();
  void release();

  /// Whether whoever held it ended without release().
  bool broken();

  /// Sleeps until one of these, which were held once, is broken or released, or `doorbell` no longer holds `expected`,
  /// or at the deadline; maybe without cause. At most one thread may watch a lifeline, since the kernel wakes only one.
  static void wait_for_any(std::span<Lifeline* const> watched, std::atomic<uint32_t>& doorbell, uint32_t expected,
                           base::TimePoint deadline);

  /// How many wait_for_any can watch at once; it leaves out those beyond.
  static constexpr size_t most = 127;

 private:
  std::atomic<uint32_t>& word();

  pthread_mutex_t mutex_;
};

}  // namespace farad::shm
