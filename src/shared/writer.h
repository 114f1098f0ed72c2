#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.h"
#include "shared/segment.h"

namespace farad::shared {

/// How one process changes a segment. One thread at a time.
class Writer {
 public:
  Writer(std::shared_ptr<Segment> segment, uint32_t seat) : segment_(std::move(segment)), seat_(seat) {}

  struct Done {
    uint64_t sequence = 0;  ///< the how-manieth of this worker
    uint64_t version = 0;   ///< what the model became by it
  };

  /// Under the lock, wholly or not at all: if `change` throws, or this process is killed, then the values become what
  /// they were, at once or as soon as the next one comes.
  base::Status locked(const std::function<void()>& change, uint64_t version_read, base::TimePoint deadline, Done& done);
  /// Beside others that do the same.
  Done unlocked(const std::function<void()>& change, uint64_t version_read);

  /// Waits for the lock, puts back what somebody has left half done, runs `act`.
  base::Status alone(const std::function<void()>& act, base::TimePoint deadline);

 private:
  base::Status acquire(base::TimePoint deadline);
  void keep();
  void put_back();
  void enter(Done done, uint64_t version_read);

  const std::shared_ptr<Segment> segment_;
  const uint32_t seat_;
  Lock::Manners manners_;
};

}  // namespace farad::shared
