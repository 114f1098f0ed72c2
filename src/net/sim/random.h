#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace farad::net::sim {

/// The seed's decisions, one after another. Uses none of the standard distributions: they differ between standard
/// libraries, and a seed printed on one machine must replay on another.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t next() { return engine_(); }
  /// 0 .. n-1.
  uint64_t below(uint64_t n) { return n <= 1 ? 0 : engine_() % n; }
  /// True with that probability; asks nothing of the seed when it is certain.
  bool chance(double probability) {
    if (probability <= 0) return false;
    return static_cast<double>(engine_() >> 11) * 0x1p-53 < probability;
  }
  std::chrono::nanoseconds between(std::chrono::nanoseconds least, std::chrono::nanoseconds most) {
    return least + std::chrono::nanoseconds(below(static_cast<uint64_t>((most - least).count()) + 1));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace farad::net::sim
