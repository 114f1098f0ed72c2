#pragma once

#include <chrono>

namespace farad::base {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

/// "Whenever": the deadline of what may wait for ever.
inline constexpr TimePoint never = TimePoint::max();

/// The end of a span that starts `now`; zero means none, as in every option of ours.
inline TimePoint deadline_after(TimePoint now, std::chrono::milliseconds span) {
  if (span.count() == 0) return never;
  const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(never - now);
  return span >= most ? never : now + span;
}

}  // namespace farad::base
