#pragma once

#include "base/clock.h"

namespace farad::net {

/// Where whoever drives a worker sleeps until a transport has something for it.
///
/// The place of the driver is taken or vacant. A ring wakes the driver where there is one and it sleeps, and the
/// resident thread where the place is vacant. Taking and leaving the place wakes nobody: a thread that calls and waits
/// in a loop comes and goes with every call, and a switch of threads each time would cost more than the call.
class Bell {
 public:
  virtual ~Bell() = default;

  /// Any thread. What it announces must be in place before.
  virtual void ring() = 0;

  // Only for the thread that holds the driver's role.

  /// Forgets the rings so far. Comes before a look at the sources, so that nothing rung later is slept over.
  virtual void clear() = 0;
  /// Returns at once if rung since clear(), else when rung or at the deadline.
  virtual void sleep(base::TimePoint deadline) = 0;
  /// The driver's place is taken from now on / is vacant from now on. If rung since clear(), vacate wakes the resident.
  /// One at a time.
  virtual void occupy() = 0;
  virtual void vacate() = 0;

  // Only for the resident thread, which does not hold the role here.

  /// Before the place is declared vacant, so that nobody who rings has to wake anybody: waits a moment, awake, where
  /// that promises more than sleep. True if it is time to look at the sources again.
  virtual bool linger() = 0;
  /// Returns when rung while the place is vacant, or woken by wake_resident(); maybe without cause.
  virtual void sleep_resident() = 0;
  /// Any thread.
  virtual void wake_resident() = 0;
};

}  // namespace farad::net
