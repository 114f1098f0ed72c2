#pragma once

#include <chrono>

#include "base/clock.h"

namespace farad::net {

/// Whether to wait by giving the core away (sched_yield), judged by how that went before. Beside a peer on the same
/// core it is the quickest way to wait: the peer runs at once, and whoever rings one that is awake makes no system
/// call. On a core that a third one keeps busy it is the worst: that one runs until its time slice is over,
/// milliseconds, where a sleeper that is woken would have run before it.
///
/// So each yield is timed. One that took long pays for a pause without any, and each such pause is twice as long as the
/// last: what a busy core can take from us is one slice in `longest_pause`. Yields that nobody rang during cost little,
/// but after a few waits in a row that they did not end we leave them for a while as well.
///
/// One thread at a time.
class Yielding {
 public:
  static constexpr int most_per_wait = 4;
  /// More than a switch to the peer, a short function there and the way back.
  static constexpr auto long_in_vain = std::chrono::microseconds(50);
  /// If it brought what we wait for then it was the peer that had the core, and a peer may compute for longer: its part
  /// of a backward pass, say. But not for as long as the time slice of a third one.
  static constexpr auto long_yield = std::chrono::microseconds(500);
  static constexpr auto first_pause = std::chrono::milliseconds(20);
  static constexpr auto longest_pause = std::chrono::seconds(2);

  /// Before a wait.
  bool willing(base::TimePoint now);
  /// How a yield went. False if it took so long that this wait had better be slept.
  bool note(base::TimePoint from, base::TimePoint to, bool came);
  /// What the wait was for came while we yielded, or it did not.
  void note_wait(bool came);

 private:
  static constexpr int patience = 8;             // Waits in vain, in a row,
  static constexpr int waits_without = 64;       // for which so many are slept at once.
  static constexpr int waits_to_forgive = 1000;  // that went well, and the next pause is a short one again.

  base::TimePoint paused_until_ = base::TimePoint::min();
  base::Duration next_pause_ = first_pause;
  int in_vain_ = 0;
  int went_well_ = 0;
};

}  // namespace farad::net
