#pragma once

#include <mutex>

// Clang checks these at compile time (-Wthread-safety); other compilers read past them.
#if defined(__clang__)
#define FARAD_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define FARAD_THREAD_ANNOTATION(x)
#endif
#define GUARDED_BY(x) FARAD_THREAD_ANNOTATION(guarded_by(x))
#define REQUIRES(...) FARAD_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) FARAD_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace farad::base {

/// std::mutex that tells the compiler what it guards. Held for a few instructions only: never while foreign code runs,
/// never across a wait.
class FARAD_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() FARAD_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() FARAD_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  bool try_lock() FARAD_THREAD_ANNOTATION(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for a scope; may let go of it early, to call out, and take it again.
class FARAD_THREAD_ANNOTATION(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) FARAD_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() FARAD_THREAD_ANNOTATION(release_capability()) {
    if (held_) mutex_.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void unlock() FARAD_THREAD_ANNOTATION(release_capability()) {
    held_ = false;
    mutex_.unlock();
  }
  void relock() FARAD_THREAD_ANNOTATION(acquire_capability()) {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

}  // namespace farad::base
