#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>

#include "base/mutex.h"
#include "base/runtime.h"
#include "net/bell.h"
#include "net/residents.h"

namespace farad::net {

class Driver;

/// One thread's wait for one thing. Whoever makes the thing true calls complete(), once or more, from any thread, while
/// the Driver lives.
class Waiter {
 private:
  struct Key {};  // Only Driver::make_waiter has one.

 public:
  Waiter(Driver& driver, Key) : driver_(driver) {}

  void complete();
  bool completed() const { return completed_.load(std::memory_order_acquire); }

 private:
  friend class Driver;
  base::Parker& parker();

  Driver& driver_;
  // Made by the waiting thread when it first parks, which most never do.
  std::unique_ptr<base::Parker> own_parker_;
  std::atomic<base::Parker*> parker_{nullptr};
  std::atomic<bool> completed_{false};
  std::atomic<bool> drives_{false};  // Then it sleeps on the bell, else on its parker.
};

/// At most one thread of a worker drives: sleeps on the bell and takes messages in. A thread that waits becomes the
/// driver when there is none and passes the role on when its wait is over; while nobody waits, a resident thread
/// drives. So a caller hears its answer without any other thread in between, and nothing is left lying when no one
/// calls.
class Driver {
 public:
  /// `poll` takes in what is there and says whether there was anything; it runs on the driving thread only.
  Driver(base::Runtime&, Bell&, std::function<bool()> poll);
  ~Driver();

  /// Any thread.
  std::shared_ptr<Waiter> make_waiter();
  /// Any thread but one inside `poll`. True once the waiter is complete, false at the deadline.
  bool wait(Waiter&, base::TimePoint deadline);
  /// The same for waits that last: leaves the driving to others. Whoever drives in a wait has a frame below that must
  /// go on when its time comes, so it cannot run functions in place; a server that only waits for its end should not
  /// keep the resident from doing so. Needs a resident.
  bool wait_aside(Waiter&, base::TimePoint deadline);
  /// Takes the role, if it is free, for a thread that is about to send something and then wait for the answer. An
  /// answer that comes before the wait has begun finds the driver's place taken, and does not wake the resident for it.
  /// The next wait() of this thread uses the role up; so does the end of the Reservation.
  class Reservation {
   public:
    explicit Reservation(Driver& driver);
    ~Reservation();
    Reservation(const Reservation&) = delete;

   private:
    Driver& driver_;
    bool made_;
  };

  /// True on the thread that is inside `poll`: there, nothing may wait.
  bool driving_here() const;

  /// Those that drive while nobody waits.
  Residents& residents() { return residents_; }

  /// Starts the resident thread. Once.
  void start();
  /// Ends all polling: when this returns no poll runs, and none will. A wait goes on until its waiter completes or its
  /// deadline passes, and so does what residents run in place, until residents().join(). Not from inside `poll`; twice
  /// is fine.
  void stop();

 private:
  friend class Waiter;
  friend class Residents;

  bool take_role() EXCLUDES(mutex_);
  bool use_reservation();
  void pass_role() EXCLUDES(mutex_);
  /// By the resident, which is awake and looks by itself: nobody need wake it yet.
  void lay_down_role() EXCLUDES(mutex_);
  /// Unless somebody drives, the resident must hear the bell from now on.
  void vacate() EXCLUDES(mutex_);
  void give_up_role() REQUIRES(mutex_);
  void drive(Waiter&, base::TimePoint deadline);
  bool poll_once();

  base::Runtime& runtime_;
  Bell& bell_;
  const std::function<bool()> poll_;
  std::unique_ptr<base::Parker> stopped_;

  base::Mutex mutex_;
  bool driven_ GUARDED_BY(mutex_) = false;
  std::deque<Waiter*> parked_ GUARDED_BY(mutex_);  // Oldest first: they take the role in the order they came.
  std::atomic<bool> stopping_{false};
  Residents residents_;
};

}  // namespace farad::net
