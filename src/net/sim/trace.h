#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/clock.h"

namespace farad::net::sim {

/// What happened in a simulated world, in order: all of it as a hash, the latest of it as text. Two runs of one seed
/// have the same hash, or something in them asked the real machine.
class Trace {
 public:
  enum class Kind : uint8_t {
    Run,
    Start,
    End,
    Send,
    Arrive,
    Take,
    Drop,
    Break,
    Lost,
    Crash,
    Stop,
    Resume,
    Cut,
    Heal,
    Mark
  };

  void add(base::TimePoint when, Kind kind, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0);

  uint64_t hash() const { return hash_; }
  uint64_t length() const { return length_; }
  /// The last few thousand steps, a line each.
  std::string text() const;

 private:
  struct Step {
    int64_t nanoseconds;
    Kind kind;
    uint64_t a, b, c;
  };
  static constexpr size_t kept = 4096;

  uint64_t hash_ = 0xcbf29ce484222325;
  uint64_t length_ = 0;
  std::deque<Step> latest_;
};

}  // namespace farad::net::sim
