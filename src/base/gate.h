#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace farad::base {

/// Counts who is inside, so that one that wants to close hears when nobody is. It keeps nobody out and nobody waiting:
/// what is inside may still let others in, and whether that is over is for its owner to know. Any thread.
class Gate {
 public:
  /// `emptied` is called by whoever leaves last, on its thread and with no lock held, from watch() on. It may come
  /// late: then somebody is inside again.
  explicit Gate(std::function<void()> emptied) : emptied_(std::move(emptied)) {}
  Gate(const Gate&) = delete;

  void enter() { ++inside_; }
  void leave() {
    if (inside_.fetch_sub(1) == 1 && watched()) emptied_();
  }
  bool empty() const { return inside_.load() == 0; }

  /// From now on somebody wants to know. Who looks whether it is empty after this misses nobody.
  void watch() { watched_.store(true); }
  bool watched() const { return watched_.load(); }

 private:
  const std::function<void()> emptied_;
  std::atomic<int64_t> inside_{0};
  std::atomic<bool> watched_{false};
};

}  // namespace farad::base
