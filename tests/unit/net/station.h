#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>

#include "net/driver.h"
#include "net/system_bell.h"

namespace farad::net {

inline base::TimePoint later(std::chrono::milliseconds span) { return base::Clock::now() + span; }

/// A driver over a queue of things to do: what the fabric looks like from here.
struct Station {
  explicit Station(std::chrono::microseconds spin = {})
      : bell(spin), driver(base::Runtime::real(), bell, [this] { return poll(); }) {}

  void post(std::function<void()> task) {
    {
      base::Lock lock(mutex);
      tasks.push_back(std::move(task));
    }
    bell.ring();
  }
  bool poll() {
    EXPECT_EQ(polling.fetch_add(1), 0) << "two threads drive at once";
    std::deque<std::function<void()>> taken;
    {
      base::Lock lock(mutex);
      taken.swap(tasks);
    }
    for (auto& task : taken) task();
    polling.fetch_sub(1);
    return !taken.empty();
  }

  SystemBell bell;
  base::Mutex mutex;
  std::deque<std::function<void()>> tasks;
  std::atomic<int> polling{0};
  Driver driver;
};

}  // namespace farad::net
