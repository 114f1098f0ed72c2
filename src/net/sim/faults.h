#pragma once

#include <chrono>

namespace farad::net::sim {

/// What befalls messages in a simulated world. The defaults are a sound network that delays and reorders.
struct Faults {
  std::chrono::nanoseconds least_delay = std::chrono::microseconds(20);
  std::chrono::nanoseconds most_delay = std::chrono::microseconds(500);
  double bytes_per_second = 1e9;  ///< on top of the delay
  bool reorder = true;            ///< later messages may overtake earlier ones

  /// Probability that a message, instead of arriving, breaks its connection.
  double breaks = 0;
  /// Probability that a message takes `stall` longer.
  double stalls = 0;
  std::chrono::nanoseconds stall = std::chrono::milliseconds(100);
};

/// How the others learn of a crash.
enum class Death {
  OfProcess,  ///< its kernel closes its connections: they hear of it soon
  OfMachine,  ///< silence: they hear of it when lost_after has passed
};

}  // namespace farad::net::sim
