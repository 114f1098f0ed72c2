#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

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

  /// One update.
  struct Work {
    std::function<void()> change;
    std::function<void(const Done&)> observe;  ///< is told of it, within it; may be empty
    uint64_t sequence = 0;                     ///< the how-manieth of this worker it is
    uint64_t version_read = 0;
  };

  /// Under the lock, wholly or not at all: if anything throws, or this process is killed, then the values become what
  /// they were, at once or as soon as the next one comes.
  base::Status locked(const Work& work, base::TimePoint deadline, Done& done);
  /// Beside others that do the same.
  Done unlocked(const Work& work);
  /// Under the lock and wholly, as no update: the values become others, and are then of that version.
  base::Status replace(const std::function<void()>& change, uint64_t version, base::TimePoint deadline);

  /// By whoever has the lock, wholly or not at all, and as one update: what several have brought. Its observer is told
  /// the sequence 0.
  void together(const Work& work, const std::vector<Ticket>& tickets);
  /// By whoever has the lock: if it throws, or this process is killed, all becomes what it was.
  void wholly(const std::function<void()>& change);

  /// Waits for the lock, puts back what somebody has left half done, runs `act`.
  base::Status alone(const std::function<void()>& act, base::TimePoint deadline);

 private:
  base::Status acquire(base::TimePoint deadline);
  void keep();
  void put_back();
  void note(const Ticket& update, uint64_t version) const;
  void enter(const Ticket& ticket, uint64_t version) const;

  const std::shared_ptr<Segment> segment_;
  const uint32_t seat_;
  Lock::Manners manners_;
};

}  // namespace farad::shared
