#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"

namespace farad::base {

/// Where one thread waits until others wake it. A wake that comes before the wait is kept, so none is lost; several
/// before one wait count once.
class Parker {
 public:
  virtual ~Parker() = default;
  /// Only the owning thread. True if woken, false if the deadline passed first.
  virtual bool park(TimePoint deadline) = 0;
  /// Any thread.
  virtual void unpark() = 0;
};

/// A started thread; the destructor joins.
class Thread {
 public:
  virtual ~Thread() = default;
};

/// Time and threads. Everything in farad that waits, starts a thread or asks for the time does it through the Runtime
/// it was given: the real one, or a simulated one in which a seed decides who runs and the clock is a number.
/// Any thread may call; a Runtime outlives what was made from it.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual TimePoint now() const = 0;
  virtual std::unique_ptr<Parker> make_parker() = 0;
  virtual std::unique_ptr<Thread> start(std::string name, std::function<void()> run) = 0;

  /// The machine's own clock and threads; parkers are futexes. Holds no state, so one for the process is enough.
  static Runtime& real();
};

}  // namespace farad::base
