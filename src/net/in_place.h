#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/executor.h"
#include "base/runtime.h"
#include "net/driver.h"

namespace farad::net {

/// How long one piece of work takes, as far as one can tell from the times before. Any thread.
class Cost {
 public:
  /// What costs more gains little by being run in place: waking another thread costs 4 to 50 us.
  static constexpr auto limit = std::chrono::microseconds(100);

  /// Whether it has been seen a few times and was short.
  bool is_short() const;
  /// Long times count for more than short ones: a mistake that way costs a wake-up, the other way holds others up. But
  /// a single one among short ones does not count: on a busy machine that is a thread that was preempted, and work that
  /// is long once in a while holds nobody up for longer than residents.h says.
  void note(base::Duration took);

 private:
  static constexpr uint32_t unknown = UINT32_MAX;
  std::atomic<uint32_t> estimate_{unknown};  // In nanoseconds.
  std::atomic<uint32_t> times_{0};
  std::atomic<uint32_t> long_ones_{0};  // Of the last times, the youngest in the lowest bit.
};

/// Runs work where that costs least: on the thread that took its message in, if it is the resident and the work was
/// short so far; else on the executor. What turns out to be long holds nobody up for longer than a moment (see
/// residents.h). Work may wait, call and be called back wherever it runs.
class InPlace {
 public:
  /// Before the driver is started. All must outlive it.
  InPlace(base::Runtime& runtime, Driver& driver, base::Executor& executor);

  /// Any thread; in place only inside the driver's poll. `cost` must live until the task has ended; tasks must not
  /// throw. False if the executor does not take it; the task is not run then.
  template <class Task>
  bool run(Cost& cost, Task task) {
    return run_noting(cost, [this, &cost, task = std::move(task)] {
      const auto start = runtime_.now();
      task();
      cost.note(runtime_.now() - start);
    });
  }
  /// The same for work that notes its cost itself, because not all of its time is its own: whom it wakes may share its
  /// core, and runs first. If the executor is closed the task is left to the caller.
  bool run_noting(const Cost& cost, std::function<void()>&& task);

 private:
  base::Runtime& runtime_;
  Driver& driver_;
  base::Executor& executor_;
};

}  // namespace farad::net
