#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"

namespace farad::base {

/// Counts who is inside, so that a close can wait until nobody is. After close() begins nobody gets in any more.
/// Any thread may enter; one thread closes.
class Gate {
 public:
  /// Being inside; ends with the pass. Empty if the gate was closed already.
  class Pass {
   public:
    Pass() = default;
    explicit Pass(Gate* gate) : gate_(gate) {}
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&& other) noexcept {
      std::swap(gate_, other.gate_);
      return *this;
    }
    ~Pass() {
      if (gate_) gate_->leave();
    }
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    Gate* gate_ = nullptr;
  };

  explicit Gate(Runtime& runtime) : empty_(runtime.make_parker()) {}

  Pass enter() {
    Lock lock(mutex_);
    if (closed_) return {};
    ++inside_;
    return Pass(this);
  }

  bool closed() const {
    Lock lock(mutex_);
    return closed_;
  }

  /// Returns when the last one left; false if the deadline passed first (the gate stays shut all the same).
  bool close(TimePoint deadline = never) {
    Lock lock(mutex_);
    closed_ = true;
    while (inside_ > 0) {
      lock.unlock();
      const bool woken = empty_->park(deadline);
      lock.relock();
      if (!woken) return inside_ == 0;
    }
    return true;
  }

 private:
  void leave() {
    Lock lock(mutex_);
    // Under the lock, because close() may destroy the gate as soon as it sees nobody inside.
    if (--inside_ == 0 && closed_) empty_->unpark();
  }

  mutable Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
  int inside_ GUARDED_BY(mutex_) = 0;
  const std::unique_ptr<Parker> empty_;
};

}  // namespace farad::base
