#pragma once

#include <cstdint>

namespace farad::acer {

/// Random numbers that follow from a seed, a stream and how many were drawn before, and so are the same everywhere.
/// Streams of one seed are independent of each other: one for each purpose of each worker.
class Random {
 public:
  struct State {
    uint64_t key = 0, count = 0;
  };

  explicit Random(uint64_t seed, uint64_t stream = 0);
  explicit Random(State state) : state_(state) {}

  uint64_t next();
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// In 0 .. n - 1; n is far below 2^53.
  int64_t below(int64_t n) { return static_cast<int64_t>(uniform() * static_cast<double>(n)); }
  double normal();
  /// For means of up to a few dozen.
  int64_t poisson(double mean);

  /// To go on from here later.
  State state() const { return state_; }

 private:
  State state_;
};

}  // namespace farad::acer
