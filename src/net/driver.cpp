#include "net/driver.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>

#include "base/executor.h"

namespace farad::net {
namespace {

thread_local const Driver* polling_here = nullptr;
/// The driver whose role this thread holds without driving yet.
thread_local const Driver* reserved_here = nullptr;

}  // namespace

base::Parker& Waiter::parker() {
  if (!own_parker_) {
    own_parker_ = driver_.runtime_.make_parker();
    parker_.store(own_parker_.get(), std::memory_order_seq_cst);
  }
  return *own_parker_;
}

void Waiter::complete() {
  if (drives_.load(std::memory_order_relaxed) && driver_.driving_here()) {
    // It is this very thread that waits: one at a time drives. It looks before it sleeps.
    completed_.store(true, std::memory_order_release);
    return;
  }
  completed_.store(true, std::memory_order_seq_cst);
  if (drives_.load(std::memory_order_seq_cst)) {
    driver_.bell_.ring();
  } else if (auto* parker = parker_.load(std::memory_order_seq_cst)) {
    parker->unpark();
  }
}

Driver::Driver(base::Runtime& runtime, Bell& bell, std::function<bool()> poll)
    : runtime_(runtime),
      bell_(bell),
      poll_(std::move(poll)),
      stopped_(runtime.make_parker()),
      residents_(runtime, bell, *this) {
  bell_.vacate();
}

Driver::~Driver() {
  stop();
  residents_.join();
}

std::shared_ptr<Waiter> Driver::make_waiter() { return std::make_shared<Waiter>(*this, Waiter::Key{}); }

bool Driver::driving_here() const { return polling_here == this; }

bool Driver::wait(Waiter& waiter, base::TimePoint deadline) {
  TORCH_CHECK(!driving_here(), "[net] a handler that runs while messages are taken in must not wait");
  if (waiter.completed()) return true;
  base::Executor::Waiting waiting;
  bool parked = false;
  while (!waiter.completed()) {
    if (use_reservation() || take_role()) {
      // Also if a handler throws, or a simulated crash unwinds us.
      const auto pass = c10::make_scope_exit([this] { pass_role(); });
      drive(waiter, deadline);
    } else {
      auto& parker = waiter.parker();
      if (waiter.completed_.load(std::memory_order_seq_cst)) break;  // It may not have seen the parker.
      {
        base::Lock lock(mutex_);
        if (!driven_ && !stopping_.load()) continue;  // The role came free just now.
        parked_.push_back(&waiter);
      }
      const auto leave = c10::make_scope_exit([&] {
        base::Lock lock(mutex_);
        std::erase(parked_, &waiter);
      });
      parked = true;
      parker.park(deadline);
    }
    if (deadline != base::never && runtime_.now() >= deadline) break;
  }
  if (!parked) return waiter.completed();
  // We may have been woken to take the role on, and not need it any more.
  base::Lock lock(mutex_);
  if (!driven_ && !parked_.empty()) parked_.front()->parker().unpark();
  return waiter.completed();
}

bool Driver::wait_aside(Waiter& waiter, base::TimePoint deadline) {
  TORCH_CHECK(!driving_here(), "[net] a handler that runs while messages are taken in must not wait");
  base::Executor::Waiting waiting;
  auto& parker = waiter.parker();
  while (!waiter.completed_.load(std::memory_order_seq_cst)) {
    if (!parker.park(deadline)) break;
  }
  return waiter.completed();
}

Driver::Reservation::Reservation(Driver& driver) : driver_(driver), made_(false) {
  if (reserved_here || polling_here || !driver.take_role()) return;
  made_ = true;
  reserved_here = &driver;
}

Driver::Reservation::~Reservation() {
  if (made_ && driver_.use_reservation()) driver_.pass_role();
}

bool Driver::use_reservation() {
  if (reserved_here != this) return false;
  reserved_here = nullptr;
  return true;
}

bool Driver::take_role() {
  base::Lock lock(mutex_);
  if (driven_ || stopping_.load()) return false;
  driven_ = true;
  bell_.occupy();
  return true;
}

void Driver::pass_role() {
  base::Lock lock(mutex_);
  // Vacant even when somebody is about to take over: should its wait end before, the resident still hears the bell.
  bell_.vacate();
  give_up_role();
}

void Driver::lay_down_role() {
  base::Lock lock(mutex_);
  give_up_role();
}

void Driver::give_up_role() {
  driven_ = false;
  if (stopping_.load()) return stopped_->unpark();
  if (!parked_.empty()) parked_.front()->parker().unpark();
}

void Driver::vacate() {
  base::Lock lock(mutex_);
  if (!driven_) bell_.vacate();
}

void Driver::drive(Waiter& waiter, base::TimePoint deadline) {
  waiter.drives_.store(true, std::memory_order_seq_cst);
  while (!waiter.completed_.load(std::memory_order_seq_cst) && !stopping_.load()) {
    bell_.clear();
    // Once more after clear(): a complete() from elsewhere that rang before it must not be slept over.
    if (waiter.completed_.load(std::memory_order_seq_cst)) break;
    if (!poll_once()) bell_.sleep(deadline);
    if (deadline != base::never && runtime_.now() >= deadline) break;
  }
  // One that is complete is not waited for any more; another complete() of it may ring in vain.
  if (!waiter.completed()) waiter.drives_.store(false, std::memory_order_seq_cst);
}

bool Driver::poll_once() {
  polling_here = this;
  const auto leave = c10::make_scope_exit([] { polling_here = nullptr; });
  return poll_();
}

void Driver::start() { residents_.start(); }

void Driver::stop() {
  if (stopping_.exchange(true)) return;
  bell_.ring();
  residents_.stop();
  // A waiting thread may still be inside poll; it leaves at once now.
  while (true) {
    {
      base::Lock lock(mutex_);
      if (!driven_) return;
    }
    stopped_->park(base::never);
  }
}

}  // namespace farad::net
