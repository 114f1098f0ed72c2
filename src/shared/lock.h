#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/status.h"

namespace farad::shared {

/// A lock in memory that processes share. Whoever takes it after one that was killed with it is told so. Who has just
/// had it lets one that waits go first, so that nobody starves; for that, each process remembers how it let go of it.
class Lock {
 public:
  /// What one process remembers. One thread at a time.
  struct Manners {
    uint64_t turn = 0;         ///< the last one that was ours
    bool others_wait = false;  ///< as it ended
  };

  /// By whoever made the memory, before it is shared.
  void prepare();

  /// Timeout if it was not to be had; `abandoned`: its last holder ended with it.
  base::Status acquire(Manners& manners, base::TimePoint deadline, bool& abandoned);
  /// By the thread that acquired it.
  void release(Manners& manners);
  /// Whether another one sleeps until it can have it.
  bool somebody_waits() const;

 private:
  void let_others_go_first(const Manners& manners) const;
  int try_for_a_while();
  uint32_t word() const;
  bool is_taken() const;

  pthread_mutex_t mutex_;
  std::atomic<uint64_t> turns_;
};

}  // namespace farad::shared
