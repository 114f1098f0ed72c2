#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"

namespace farad::base {

/// Runs tasks on threads of its own. There are `threads` of them, and more while some wait: a task that is about to
/// wait says so (see Waiting), and if that leaves queued tasks without a thread, one is added, which ends when it is
/// not needed any more. So tasks may wait for tasks, to any depth.
class Executor {
 public:
  Executor(Runtime&, std::string name, int threads);
  /// Like close().
  ~Executor();

  /// Any thread. Tasks must not throw. False once closed, or if all threads wait and the system has none to spare; the
  /// task is left as it is then.
  bool post(std::function<void()>&& task);

  /// For the time of its life, the calling thread waits. Costs nothing on threads that are not of an executor.
  class Waiting {
   public:
    /// Throws Error if that would leave queued tasks without a thread, and none can be made: what it is to wait for may
    /// be among them.
    Waiting();
    ~Waiting();
    Waiting(const Waiting&) = delete;

   private:
    Executor* executor_;
  };

  /// Runs what is queued, then ends the threads. Not from a task.
  void close();

  int threads() const;  ///< how many there are now

 private:
  struct Worker;

  void work(Worker& self);
  void end(Worker& self) REQUIRES(mutex_);
  /// Gives back the workers that have ended, for the caller to join once it let go of the lock.
  [[nodiscard]] std::vector<std::unique_ptr<Worker>> add_thread_if_needed() REQUIRES(mutex_);
  std::vector<std::unique_ptr<Worker>> take_ended() REQUIRES(mutex_);

  Runtime& runtime_;
  const std::string name_;
  const int wanted_;

  mutable Mutex mutex_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Worker>> workers_ GUARDED_BY(mutex_);
  std::vector<Worker*> idle_ GUARDED_BY(mutex_);  // A stack: the thread that slept last has the warmest cache.
  int running_ GUARDED_BY(mutex_) = 0;            // Threads that have not ended.
  int waiting_ GUARDED_BY(mutex_) = 0;            // Those of them inside a Waiting.
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace farad::base
