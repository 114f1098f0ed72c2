#pragma once

#include <cstdint>

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
    bool torn = false;  ///< it could not be had whole in time: then it is of several versions
  };
  /// So many bytes from the beginning of the values. `writer` is asked if nothing else helps.
  base::Status copy(char* to, size_t bytes, Writer& writer, base::TimePoint deadline, Seen& seen);

 private:
  bool try_copy(char* to, size_t bytes, Seen& seen) const;
  bool somebody_writes() const;
  bool copy_at_rest(char* to, size_t bytes, base::TimePoint deadline, Seen& seen) const;

  const std::shared_ptr<Segment> segment_;
  const bool locked_;  // whether who changes it has the lock
};

}  // namespace farad::shared
