#pragma once

#include <chrono>
#include <string>

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

/// "5 s", "50 ms", for messages.
inline std::string to_text(std::chrono::milliseconds span) {
  const auto ms = span.count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

}  // namespace farad::base
