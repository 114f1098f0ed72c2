#include "rpc/delayed.h"

#include <utility>

namespace farad::rpc {

void Delayed::add(base::TimePoint due, Task task) {
  base::Lock lock(mutex_);
  tasks_.emplace(due, std::move(task));
}

base::TimePoint Delayed::run_due(base::TimePoint now) {
  while (true) {
    Task task;
    {
      base::Lock lock(mutex_);
      if (tasks_.empty()) return base::never;
      const auto first = tasks_.begin();
      if (first->first > now) return first->first;
      task = std::move(first->second);
      tasks_.erase(first);
    }
    task();
  }
}

}  // namespace farad::rpc
