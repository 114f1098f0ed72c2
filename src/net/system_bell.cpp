#include "net/system_bell.h"

#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <new>

#include "base/futex.h"

namespace farad::net {

using shm::BellPage;

namespace {

constexpr uint64_t own_cookie = UINT64_MAX;

/// After this many spins in a row that nobody ended, the peer is not of the quick kind: sleep at once for a while.
constexpr int patience = 8;
constexpr int sulk = 64;

/// Tells the core that we only look, so that whoever shares it gets on.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

SystemBell::SystemBell(std::chrono::microseconds spin) : spin_(spin) {
  shm::Memory::create("farad-bell", BellPage::bytes, memory_).raise();
  memory_.reserve(0, BellPage::bytes).raise();
  page_ = new (memory_.data()) BellPage{};
  page_->ringer_cpu.store(UINT32_MAX);
  eventfd_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!eventfd_) shm::system_error("eventfd").raise();
  epoll_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) shm::system_error("epoll_create1").raise();
  epoll_event own{};
  own.events = EPOLLIN | EPOLLET;
  own.data.u64 = own_cookie;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, eventfd_.get(), &own) != 0) shm::system_error("epoll_ctl").raise();
}

void SystemBell::ring() { page_->ring(eventfd_.get()); }

void SystemBell::clear() {
  page_->state.fetch_and(~BellPage::rung, std::memory_order_seq_cst);
  if (!watching_.load(std::memory_order_relaxed)) return;
  if (has_strays_.load(std::memory_order_seq_cst)) {
    base::Lock lock(mutex_);
    has_strays_.store(false, std::memory_order_seq_cst);
    ready_.insert(ready_.end(), strays_.begin(), strays_.end());
    strays_.clear();
  }
  if (++clears_ >= clears_per_check) wait_in_epoll(ready_, base::TimePoint::min());
}

bool SystemBell::look(Looks& looks, uint32_t wanted, base::TimePoint deadline) {
  if (spin_.count() == 0) return false;
  const uint32_t ringer = page_->ringer_cpu.load(std::memory_order_relaxed);
  if (ringer == UINT32_MAX) return false;
  return ringer == static_cast<uint32_t>(::sched_getcpu()) ? yield(looks, wanted) : spin(looks, wanted, deadline);
}

bool SystemBell::spin(Looks& looks, uint32_t wanted, base::TimePoint deadline) {
  if (looks.spins_failed >= patience) {
    if (++looks.spins_failed > patience + sulk) looks.spins_failed = 0;
    return false;
  }
  const auto until = std::min(deadline, base::Clock::now() + spin_);
  do {
    for (int i = 0; i < 64; ++i) {
      if (has(wanted)) {
        looks.spins_failed = 0;
        return true;
      }
      relax();
    }
  } while (base::Clock::now() < until);
  ++looks.spins_failed;
  return false;
}

bool SystemBell::yield(Looks& looks, uint32_t wanted) {
  auto& yielding = looks.yielding;
  auto before = base::Clock::now();
  if (!yielding.willing(before)) return false;
  bool came = false;
  for (int i = 0; i < Yielding::most_per_wait && !came; ++i) {
    ::sched_yield();
    came = has(wanted);
    const auto after = base::Clock::now();
    if (!yielding.note(before, after)) return came;
    before = after;
  }
  yielding.note_wait(came);
  return came;
}

void SystemBell::sleep(base::TimePoint deadline) {
  if (!ready_.empty() || has_strays_.load() || (page_->state.load(std::memory_order_seq_cst) & BellPage::rung)) return;
  if (look(drivers_looks_, BellPage::rung, deadline)) return;
  uint32_t state = page_->state.fetch_or(BellPage::asleep, std::memory_order_seq_cst) | BellPage::asleep;
  if (watching_.load()) {
    // Strays once more: who brought them before we were asleep did not wake us.
    if (!(state & BellPage::rung) && !has_strays_.load()) wait_in_epoll(ready_, deadline);
  } else {
    while (!(state & BellPage::rung)) {
      if (!base::futex_wait(page_->state, state, deadline, BellPage::driver_sleeper)) break;
      state = page_->state.load(std::memory_order_seq_cst);
    }
  }
  page_->state.fetch_and(~BellPage::asleep, std::memory_order_seq_cst);
}

void SystemBell::occupy() { page_->state.fetch_and(~BellPage::vacant, std::memory_order_seq_cst); }

void SystemBell::vacate() {
  const uint32_t before = page_->state.fetch_or(BellPage::vacant, std::memory_order_seq_cst);
  if ((before & BellPage::rung) || !ready_.empty() || has_strays_.load()) wake_resident();
}

void SystemBell::sleep_resident() {
  constexpr uint32_t wanted = BellPage::vacant | BellPage::rung;
  uint32_t state = page_->state.load(std::memory_order_seq_cst);
  if (!(state & BellPage::rung) && (state & BellPage::vacant) && !watching_.load()) {
    page_->state.fetch_or(BellPage::looking, std::memory_order_seq_cst);
    look(residents_looks_, wanted, base::never);
    // Whoever rings from here on wakes us. Who rang before is seen now.
    state = page_->state.fetch_and(~BellPage::looking, std::memory_order_seq_cst) & ~BellPage::looking;
  }
  if ((state & wanted) == wanted) return;
  if (!watching_.load()) {
    // Whatever the state is, it is right to sleep on it: when the place gets vacant and the bell rings, we are woken.
    base::futex_wait(page_->state, state, base::never, BellPage::resident_sleeper);
    return;
  }
  // Events wake one of those who sleep in an epoll, the last to come. A driver that comes and goes with every call is
  // that one, so we lie here undisturbed, and are there when it is gone. If it was our turn all the same, pass it on.
  std::vector<epoll_event> events;
  wait_in_epoll(events, base::never);
  if (!events.empty()) {
    base::Lock lock(mutex_);
    strays_.insert(strays_.end(), events.begin(), events.end());
    has_strays_.store(true, std::memory_order_seq_cst);
  }
  // A driver that sleeps must be woken. One that is awake looks before it sleeps or leaves, and if there is none we
  // take the role next; to wake the epoll then would wake nobody but ourselves, again and again.
  if (page_->state.load(std::memory_order_seq_cst) & BellPage::asleep) wake_epoll();
}

void SystemBell::wake_resident() {
  base::futex_wake(page_->state, 1, BellPage::resident_sleeper);
  if (watching_.load()) wake_epoll();
}

void SystemBell::wake_epoll() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(eventfd_.get(), &one, sizeof(one));
}

void SystemBell::wait_in_epoll(std::vector<epoll_event>& events, base::TimePoint deadline) {
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
    // Our own eventfd is never read: each write to it is news, whatever it holds.
    if (found[i].data.u64 != own_cookie) events.push_back(found[i]);
  }
}

void SystemBell::watch(int fd, uint32_t events, uint64_t cookie) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.u64 = cookie;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) shm::system_error("epoll_ctl add").raise();
  if (watching_.exchange(true)) return;
  // Whoever sleeps in the futex must come to epoll; whoever is about to sleep there finds the state changed.
  page_->state.fetch_or(BellPage::in_epoll | BellPage::rung, std::memory_order_seq_cst);
  base::futex_wake(page_->state, INT_MAX);
}

void SystemBell::rewatch(int fd, uint32_t events, uint64_t cookie) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.u64 = cookie;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) shm::system_error("epoll_ctl mod").raise();
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
