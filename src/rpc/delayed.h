#pragma once

#include <functional>
#include <map>

#include "base/clock.h"
#include "base/mutex.h"

namespace farad::rpc {

/// What is to be done at some time, in the order of these times. Any thread.
class Delayed {
 public:
  using Task = std::function<void()>;

  void add(base::TimePoint due, Task task) EXCLUDES(mutex_);
  /// Runs what is due, and says when the next is; base::never if there is none.
  base::TimePoint run_due(base::TimePoint now) EXCLUDES(mutex_);

 private:
  base::Mutex mutex_;
  std::multimap<base::TimePoint, Task> tasks_ GUARDED_BY(mutex_);
};

}  // namespace farad::rpc
