#include "net/system_bell.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <new>

#include "base/futex.h"
#include "base/relax.h"

namespace farad::net {

using shm::BellPage;

namespace {

constexpr uint64_t own_cookie = UINT64_MAX;
constexpr uint64_t inner_cookie = UINT64_MAX - 1;

/// After this many spins in a row that nobody ended, the peer is not of the quick kind: sleep at once for a while.
constexpr int patience = 8;
constexpr int sulk = 64;

base::Fd make_eventfd() {
  base::Fd made(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made) shm::system_error("eventfd").raise();
  return made;
}

base::Fd make_epoll() {
  base::Fd made(::epoll_create1(EPOLL_CLOEXEC));
  if (!made) shm::system_error("epoll_create1").raise();
  return made;
}

void control(const base::Fd& epoll, int what, int fd, uint32_t events, uint64_t cookie) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = cookie;
  if (::epoll_ctl(epoll.get(), what, fd, &event) != 0) shm::system_error("epoll_ctl").raise();
}

}  // namespace

SystemBell::SystemBell(std::chrono::microseconds spin) : spin_(spin) {
  shm::Memory::create("farad-bell", BellPage::bytes, memory_).raise();
  memory_.reserve(0, BellPage::bytes).raise();
  page_ = new (memory_.data()) BellPage{};
  page_->ringer_cpu.store(UINT32_MAX);
  eventfd_ = make_eventfd();
  resident_eventfd_ = make_eventfd();
  epoll_ = make_epoll();
  resident_epoll_ = make_epoll();
  // Eventfds are never read: each write to one is news, whatever it holds.
  control(epoll_, EPOLL_CTL_ADD, eventfd_.get(), EPOLLIN | EPOLLET, own_cookie);
  control(resident_epoll_, EPOLL_CTL_ADD, resident_eventfd_.get(), EPOLLIN | EPOLLET, own_cookie);
  control(resident_epoll_, EPOLL_CTL_ADD, epoll_.get(), 0, inner_cookie);
}

void SystemBell::ring() { page_->ring(eventfd_.get()); }

void SystemBell::clear() {
  page_->state.fetch_and(~BellPage::rung, std::memory_order_seq_cst);
  if (!watching_.load(std::memory_order_relaxed)) return;
  if (guessed_.load(std::memory_order_relaxed) && guessed_.exchange(false)) again(last_found_, EPOLLIN);
  const bool woken = epoll_has_news_.load() && epoll_has_news_.exchange(false);
  if (woken || ++clears_ >= clears_per_check) wait_in_epoll(base::TimePoint::min());
}

bool SystemBell::drivers_news() {
  if (page_->state.load(std::memory_order_relaxed) & BellPage::rung) return true;
  if (!watching_.load(std::memory_order_relaxed)) return false;
  wait_in_epoll(base::TimePoint::min());
  return !ready_.empty();
}

/// Takes no event out: that is for whoever holds the role.
bool SystemBell::residents_news() {
  if (page_->state.load(std::memory_order_relaxed) & BellPage::rung) return true;
  if (!watching_.load(std::memory_order_relaxed)) return false;
  pollfd inner{epoll_.get(), POLLIN, 0};
  if (::poll(&inner, 1, 0) != 1) return false;
  epoll_has_news_.store(true);
  return true;
}

bool SystemBell::look(Looks& looks, News news, base::TimePoint deadline) {
  if (spin_.count() == 0) return false;
  const uint32_t ringer = page_->ringer_cpu.load(std::memory_order_relaxed);
  const bool unknown = ringer == UINT32_MAX;
  if (!unknown && ringer != static_cast<uint32_t>(::sched_getcpu())) return spin(looks, news, deadline);
  // Where those run who write into our descriptors nobody tells; to yield in vain is soon given up.
  return unknown && !watching_.load(std::memory_order_relaxed) ? false : yield(looks, news);
}

bool SystemBell::spin(Looks& looks, News news, base::TimePoint deadline) {
  if (looks.spins_failed >= patience) {
    if (++looks.spins_failed > patience + sulk) looks.spins_failed = 0;
    return false;
  }
  const auto until = std::min(deadline, base::Clock::now() + spin_);
  do {
    for (int i = 0; i < 64; ++i) {
      if ((this->*news)()) {
        looks.spins_failed = 0;
        return true;
      }
      base::relax();
    }
  } while (base::Clock::now() < until);
  ++looks.spins_failed;
  return false;
}

bool SystemBell::yield(Looks& looks, News news) {
  auto& yielding = looks.yielding;
  auto before = base::Clock::now();
  if (!yielding.willing(before)) return false;
  bool came = false;
  for (int i = 0; i < Yielding::most_per_wait && !came; ++i) {
    ::sched_yield();
    const auto after = base::Clock::now();
    came = guess() || (this->*news)();
    if (!yielding.note(before, after, came)) return came;
    before = after;
  }
  yielding.note_wait(came);
  return came;
}

bool SystemBell::guess() {
  if (!guessable_.load(std::memory_order_relaxed) || !guessable_.exchange(false)) return false;
  guessed_.store(true);
  return true;
}

void SystemBell::found(uint64_t cookie) {
  guessable_.store(cookie == last_found_, std::memory_order_relaxed);
  last_found_ = cookie;
}

void SystemBell::sleep(base::TimePoint deadline) {
  if (!ready_.empty() || (page_->state.load(std::memory_order_seq_cst) & BellPage::rung)) return;
  if (look(drivers_looks_, &SystemBell::drivers_news, deadline)) return;
  uint32_t state = page_->state.fetch_or(BellPage::asleep, std::memory_order_seq_cst) | BellPage::asleep;
  if (watching_.load()) {
    if (!(state & BellPage::rung)) wait_in_epoll(deadline);
  } else {
    while (!(state & BellPage::rung)) {
      if (!base::futex_wait(page_->state, state, deadline, BellPage::driver_sleeper)) break;
      state = page_->state.load(std::memory_order_seq_cst);
    }
  }
  page_->state.fetch_and(~BellPage::asleep, std::memory_order_seq_cst);
}

void SystemBell::occupy() {
  page_->state.fetch_and(~BellPage::vacant, std::memory_order_seq_cst);
  if (armed_.load(std::memory_order_relaxed)) arm_resident(false);
}

void SystemBell::vacate() {
  const uint32_t before = page_->state.fetch_or(BellPage::vacant, std::memory_order_seq_cst);
  if (watching_.load()) arm_resident(true);
  if ((before & BellPage::rung) || !ready_.empty()) wake_resident();
}

/// What is in epoll_ already counts: arming wakes the resident for it.
void SystemBell::arm_resident(bool armed) {
  armed_.store(armed, std::memory_order_relaxed);
  control(resident_epoll_, EPOLL_CTL_MOD, epoll_.get(), armed ? EPOLLIN | EPOLLONESHOT : 0, inner_cookie);
}

bool SystemBell::linger() { return look(residents_looks_, &SystemBell::residents_news, base::never); }

void SystemBell::sleep_resident() {
  constexpr uint32_t wanted = BellPage::vacant | BellPage::rung;
  const uint32_t state = page_->state.load(std::memory_order_seq_cst);
  if ((state & wanted) == wanted) return;
  if (!watching_.load()) {
    // Whatever the state is, it is right to sleep on it: when the place gets vacant and the bell rings, we are woken.
    base::futex_wait(page_->state, state, base::never, BellPage::resident_sleeper);
    return;
  }
  std::array<epoll_event, 2> found;
  const int count = ::epoll_wait(resident_epoll_.get(), found.data(), static_cast<int>(found.size()), -1);
  for (int i = 0; i < count; ++i) {
    if (found[i].data.u64 != inner_cookie) continue;
    // That was the one time. If somebody came and went meanwhile it is armed again, and the next driver only thinks
    // that it need not end that: we are woken once for nothing.
    armed_.store(false, std::memory_order_relaxed);
    epoll_has_news_.store(true);
  }
}

void SystemBell::wake_resident() {
  base::futex_wake(page_->state, 1, BellPage::resident_sleeper);
  if (!watching_.load()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(resident_eventfd_.get(), &one, sizeof(one));
}

void SystemBell::wait_in_epoll(base::TimePoint deadline) {
  clears_ = 0;
  int timeout = -1;
  if (deadline == base::TimePoint::min()) {
    timeout = 0;
  } else if (deadline != base::never) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - base::Clock::now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
  }
  std::array<epoll_event, batch> found;
  const int count = ::epoll_wait(epoll_.get(), found.data(), batch, timeout);
  for (int i = 0; i < count; ++i) {
    if (found[i].data.u64 != own_cookie) ready_.push_back(found[i]);
  }
}

void SystemBell::watch(int fd, uint32_t events, uint64_t cookie) {
  control(epoll_, EPOLL_CTL_ADD, fd, events | EPOLLET, cookie);
  if (watching_.exchange(true)) return;
  // Whoever sleeps in the futex must come to epoll; whoever is about to sleep there finds the state changed.
  page_->state.fetch_or(BellPage::in_epoll | BellPage::rung, std::memory_order_seq_cst);
  base::futex_wake(page_->state, INT_MAX);
}

void SystemBell::rewatch(int fd, uint32_t events, uint64_t cookie) {
  control(epoll_, EPOLL_CTL_MOD, fd, events | EPOLLET, cookie);
}

void SystemBell::unwatch(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void SystemBell::again(uint64_t cookie, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = cookie;
  ready_.push_back(event);
}

std::span<const epoll_event> SystemBell::take_ready() {
  taken_.clear();
  taken_.swap(ready_);
  return taken_;
}

}  // namespace farad::net
