#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace farad::acer {

/// Lets processes wait for something that others have put into memory that they share. Who waits takes the count, looks
/// whether it is there, and if not waits for the count to change.
class Changes {
 public:
  uint32_t count() const { return count_.load(); }
  /// Until the count is not `before` any more, or that time has passed, or for no reason.
  void wait(uint32_t before, std::chrono::milliseconds at_most);
  /// Wakes all who wait.
  void announce();

 private:
  std::atomic<uint32_t> count_{0};
};

}  // namespace farad::acer
