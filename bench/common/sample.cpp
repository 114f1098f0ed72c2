#include "common/sample.h"

#include <algorithm>
#include <cstdio>

namespace farad::bench {

using Clock = std::chrono::steady_clock;

Sample summarise(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  if (times.empty()) return {};
  return {times[times.size() / 2], times[times.size() * 99 / 100], times.front(), static_cast<int>(times.size())};
}

Sample time_each(const std::function<void()>& once, std::chrono::milliseconds span, int least, int most) {
  const auto warm_until = Clock::now() + span / 10;
  for (int i = 0; i < least || (i < most && Clock::now() < warm_until); ++i) once();
  std::vector<double> times;
  const auto until = Clock::now() + span;
  while (static_cast<int>(times.size()) < least || (static_cast<int>(times.size()) < most && Clock::now() < until)) {
    const auto start = Clock::now();
    once();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return summarise(std::move(times));
}

std::string readable_bytes(size_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  if (bytes < (1 << 20)) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes >> 20) + " MiB";
}

std::string readable_time(double us) {
  char text[32];
  if (us < 100) {
    std::snprintf(text, sizeof(text), "%.1f us", us);
  } else if (us < 1000) {
    std::snprintf(text, sizeof(text), "%.0f us", us);
  } else {
    std::snprintf(text, sizeof(text), "%.1f ms", us / 1000);
  }
  return text;
}

}  // namespace farad::bench
