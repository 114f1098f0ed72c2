#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace farad::net {

/// Pauses between tries, short at first: whoever is late is mostly late by little.
class Backoff {
 public:
  explicit Backoff(base::Duration most) : most_(most) {}

  base::Duration next() {
    const auto pause = next_;
    next_ = std::min(most_, next_ * 3 / 2);
    return pause;
  }

 private:
  base::Duration most_;
  base::Duration next_ = std::chrono::milliseconds(1);
};

}  // namespace farad::net
