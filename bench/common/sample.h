#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace farad::bench {

/// Times of single operations, in microseconds.
struct Sample {
  double p50 = 0;
  double p99 = 0;
  double best = 0;
  int count = 0;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Sample, p50, p99, best, count)

Sample summarise(std::vector<double> microseconds);

/// Runs `once` until `span` is over, at least `least` and at most `most` times, after a tenth of that to warm up.
Sample time_each(const std::function<void()>& once, std::chrono::milliseconds span, int least = 5, int most = 20'000);

/// "16 B", "64 KiB", "128 MiB".
std::string readable_bytes(size_t bytes);
/// "3.1 us", "7.3 ms".
std::string readable_time(double microseconds);

}  // namespace farad::bench
