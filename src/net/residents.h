#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "net/bell.h"

namespace farad::net {

class Driver;

/// The threads that drive a worker while nobody waits, and run what is short in between. One of them is the resident;
/// there are others only because the resident was once held up.
///
/// What is short runs on the resident between two looks at the bell, without the driver's role: no other thread has to
/// be woken for it, and whoever waits meanwhile drives by itself. Should it take long after all, a watchdog notices
/// within two ticks, makes another thread the resident and gives what stands behind the long one to the overflow. The
/// thread that was held up is a spare from then on. So messages that nobody waits for are late by two ticks at most.
class Residents {
 public:
  using Task = std::function<void()>;
  static constexpr auto tick = std::chrono::milliseconds(1);

  Residents(base::Runtime& runtime, Bell& bell, Driver& driver);
  /// Like join(), after stop().
  ~Residents();

  /// Where tasks go that a long one holds up. Before start().
  void set_overflow(std::function<void(Task)> overflow) { overflow_ = std::move(overflow); }
  /// Once.
  void start();

  /// Inside the driver's poll, whoever runs it. True if that is the resident: it runs `task` as soon as it has taken in
  /// what is there. False if it is a thread that waits, or the watchdog cannot be started; the task is untouched then.
  /// Tasks must not throw.
  bool run_in_place(Task& task) EXCLUDES(mutex_);

  /// They take no more messages in; tasks already taken are still run. Any thread.
  void stop() EXCLUDES(mutex_);
  /// After stop(): waits until their tasks have ended. Not from a task.
  void join() EXCLUDES(mutex_);

 private:
  struct Resident;

  void reside(Resident& self);
  void run_tasks(Resident& self) EXCLUDES(mutex_);
  void watch() EXCLUDES(mutex_);
  void relieve(Resident& held_up, uint64_t batch) EXCLUDES(mutex_);
  Resident* make_resident() REQUIRES(mutex_);

  base::Runtime& runtime_;
  Bell& bell_;
  Driver& driver_;
  std::function<void(Task)> overflow_;
  std::atomic<bool> stopping_{false};

  base::Mutex mutex_;
  std::vector<std::unique_ptr<Resident>> all_ GUARDED_BY(mutex_);
  std::vector<Resident*> spare_ GUARDED_BY(mutex_);
  std::atomic<Resident*> acting_{nullptr};                     // Written under the lock.
  std::deque<Task> tasks_ GUARDED_BY(mutex_);                  // Of the acting one.
  std::unique_ptr<base::Thread> watchdog_ GUARDED_BY(mutex_);  // From the first task on.
  const std::unique_ptr<base::Parker> watch_parker_;
  std::atomic<bool> watch_asleep_{false};
  const std::unique_ptr<base::Parker> ended_;  // Unparked by each that ends.
};

}  // namespace farad::net
