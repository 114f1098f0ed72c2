#include "net/system_bell.h"

#include <immintrin.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <climits>
#include <new>

#include "base/futex.h"

namespace farad::net {

using shm::BellPage;

namespace {

constexpr uint64_t own_cookie = UINT64_MAX;

/// The bell whose resident this thread is.
thread_local const SystemBell* resident_here_of = nullptr;

/// After this many spins in a row that nobody ended, the peer is not of the quick kind: sleep at once for a while.
constexpr int patience = 8;
constexpr int sulk = 64;

}  // namespace

SystemBell::SystemBell(std::chrono::microseconds spin) : spin_(spin) {
  shm::Memory::create("farad-bell", BellPage::bytes, memory_).raise();
  memory_.reserve(0, BellPage::bytes).raise();
  page_ = new (memory_.data()) BellPage{};
  page_->ringer_cpu.store(UINT32_MAX);
  eventfd_ = shm::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!eventfd_) shm::system_error("eventfd").raise();
  epoll_ = shm::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) shm::system_error("epoll_create1").raise();
  epoll_event own{};
  own.events = EPOLLIN;
  own.data.u64 = own_cookie;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, eventfd_.get(), &own) != 0) shm::system_error("epoll_ctl").raise();
}

void SystemBell::ring() { page_->ring(eventfd_.get()); }

void SystemBell::clear() {
  page_->state.fetch_and(~BellPage::rung, std::memory_order_seq_cst);
  if (!watching_.load(std::memory_order_relaxed)) return;
  if (resident_here_of == this && resident_ready_count_ > 0) {
    ready_ = resident_ready_;
    ready_count_.store(std::exchange(resident_ready_count_, 0), std::memory_order_relaxed);
  } else if (++clears_ >= clears_per_check && ready_count_.load(std::memory_order_relaxed) == 0) {
    clears_ = 0;
    ready_count_.store(wait_in_epoll(ready_, base::TimePoint::min()), std::memory_order_relaxed);
  }
}

bool SystemBell::spin_until_rung(base::TimePoint deadline) {
  if (spin_.count() == 0) return false;
  const uint32_t ringer = page_->ringer_cpu.load(std::memory_order_relaxed);
  if (ringer == UINT32_MAX || ringer == static_cast<uint32_t>(::sched_getcpu())) return false;
  if (spins_failed_ >= patience) {
    if (++spins_failed_ > patience + sulk) spins_failed_ = 0;
    return false;
  }
  const auto until = std::min(deadline, base::Clock::now() + spin_);
  do {
    for (int i = 0; i < 64; ++i) {
      if (page_->state.load(std::memory_order_relaxed) & BellPage::rung) {
        spins_failed_ = 0;
        return true;
      }
      _mm_pause();
    }
  } while (base::Clock::now() < until);
  ++spins_failed_;
  return false;
}

void SystemBell::sleep(base::TimePoint deadline) {
  if (page_->state.load(std::memory_order_seq_cst) & BellPage::rung) return;
  if (spin_until_rung(deadline)) return;
  clears_ = 0;
  if (watching_.load()) {
    const uint32_t flags = BellPage::asleep | BellPage::in_epoll;
    if (!(page_->state.fetch_or(flags, std::memory_order_seq_cst) & BellPage::rung)) {
      ready_count_.store(wait_in_epoll(ready_, deadline), std::memory_order_relaxed);
    }
  } else {
    uint32_t state = page_->state.fetch_or(BellPage::asleep, std::memory_order_seq_cst) | BellPage::asleep;
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
  const bool misplaced = watching_.load() && resident_in_futex_.load();  // Descriptors do not wake it there.
  if ((before & BellPage::rung) || ready_count_.load(std::memory_order_relaxed) > 0 || misplaced) wake_resident();
}

void SystemBell::sleep_resident() {
  resident_here_of = this;
  resident_ready_count_ = 0;
  resident_in_futex_.store(true);
  const uint32_t state = page_->state.load(std::memory_order_seq_cst);
  const bool vacant = state & BellPage::vacant;
  if (vacant && (state & BellPage::rung || ready_count_.load(std::memory_order_relaxed) > 0)) {
    resident_in_futex_.store(false);
  } else if (vacant && watching_.load()) {
    resident_in_futex_.store(false);
    page_->state.fetch_or(BellPage::in_epoll, std::memory_order_seq_cst);
    if (page_->state.load(std::memory_order_seq_cst) & BellPage::rung) return;
    // Descriptors wake one sleeper of an epoll, the last to come: a driver that comes later is served before us.
    resident_ready_count_ = wait_in_epoll(resident_ready_, base::never);
    if (!(page_->state.load(std::memory_order_seq_cst) & BellPage::vacant)) ring();  // That was meant for the driver.
  } else {
    // Whatever the state is, it is right to sleep on it: when the place gets vacant and the bell rings, we are woken.
    // While somebody drives we stay out of epoll, where every event would wake both of us until it is dealt with.
    base::futex_wait(page_->state, state, base::never, BellPage::resident_sleeper);
    resident_in_futex_.store(false);
  }
}

void SystemBell::wake_resident() {
  base::futex_wake(page_->state, 1, BellPage::resident_sleeper);
  if (watching_.load()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(eventfd_.get(), &one, sizeof(one));
  }
}

int SystemBell::wait_in_epoll(std::span<epoll_event> events, base::TimePoint deadline) {
  int timeout = -1;
  if (deadline == base::TimePoint::min()) {
    timeout = 0;
  } else if (deadline != base::never) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - base::Clock::now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
  }
  const int count = std::max(0, ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout));
  auto* last = std::remove_if(events.data(), events.data() + count, [&](const epoll_event& event) {
    if (event.data.u64 != own_cookie) return false;
    uint64_t drained;
    [[maybe_unused]] const ssize_t n = ::read(eventfd_.get(), &drained, sizeof(drained));
    return true;
  });
  return static_cast<int>(last - events.data());
}

void SystemBell::watch(int fd, uint32_t events, uint64_t cookie) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = cookie;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) shm::system_error("epoll_ctl add").raise();
  if (watching_.exchange(true)) return;
  // Whoever sleeps in the futex must come to epoll.
  ring();
  wake_resident();
}

void SystemBell::rewatch(int fd, uint32_t events, uint64_t cookie) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = cookie;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) shm::system_error("epoll_ctl mod").raise();
}

void SystemBell::unwatch(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const epoll_event> SystemBell::take_ready() {
  return {ready_.data(), static_cast<size_t>(ready_count_.exchange(0, std::memory_order_relaxed))};
}

}  // namespace farad::net
