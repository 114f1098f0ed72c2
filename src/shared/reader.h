#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "shared/segment.h"
#include "shared/writer.h"

namespace farad::shared {

/// Copies the values of a segment as they were at one instant, without keeping anybody from changing them; only if they
/// change all the time does it ask for a moment. One thread at a time.
class Reader {
 public:
  Reader(std::shared_ptr<Segment> segment, bool locked) : segment_(std::move(segment)), locked_(locked) {}

  struct Seen {
    uint64_t version = 0;
    bool torn = false;   ///< it could not be had whole in time: then it is of several versions
    double samples = 0;  ///< Averaged: that had gone into it
  };
  struct Part {
    size_t offset = 0;  ///< among the values
    size_t bytes = 0;
    void* to = nullptr;
  };
  /// These parts of the values. `writer` is asked if nothing else helps. What they go to is undefined after a failure.
  base::Status copy(const std::vector<Part>& parts, Writer& writer, base::TimePoint deadline, Seen& seen);

 private:
  /// Who is in the middle of an update, without a lock.
  struct Writing {
    std::bitset<most_workers> seats;  ///< those that were killed in it too, until they are taken again
    bool some_live = false;
    uint64_t cut_off = 0;  ///< and those that were taken again
  };
  bool try_copy(const std::vector<Part>& parts, Seen& seen) const;
  void copy_all(const std::vector<Part>& parts) const;
  Writing writing() const;
  bool copy_at_rest(const std::vector<Part>& parts, base::TimePoint deadline, Seen& seen) const;

  const std::shared_ptr<Segment> segment_;
  const bool locked_;  // whether who changes it has the lock
};

}  // namespace farad::shared
