#pragma once

#include <array>
#include <atomic>
#include <chrono>

#include "net/bell.h"
#include "net/poller.h"
#include "shm/bell_page.h"

namespace farad::net {

/// The bell of a real worker. It lies in shared memory, so that peers in other processes ring it themselves: a futex
/// while there are only such peers, epoll with an eventfd once descriptors are watched.
class SystemBell final : public Bell, public Poller {
 public:
  /// `spin`: how long a sleeper looks before it sleeps, if whoever rang last runs on another core: waking across cores
  /// costs 50 us on some machines, looking costs nobody anything there. Zero never spins. Throws if the system is out
  /// of descriptors or memory.
  explicit SystemBell(std::chrono::microseconds spin);

  void ring() override;
  void clear() override;
  void sleep(base::TimePoint deadline) override;
  void occupy() override;
  void vacate() override;
  void sleep_resident() override;
  void wake_resident() override;

  void watch(int fd, uint32_t events, uint64_t cookie) override;
  void rewatch(int fd, uint32_t events, uint64_t cookie) override;
  void unwatch(int fd) override;
  std::span<const epoll_event> take_ready() override;

  shm::BellPage& page() { return *page_; }
  int page_fd() const { return memory_.fd(); }
  int eventfd() const { return eventfd_.get(); }

 private:
  static constexpr int batch = 64;
  /// How often clear() may come without a sleep until descriptors get their turn.
  static constexpr int clears_per_check = 32;

  bool spin_until_rung(base::TimePoint deadline);
  int wait_in_epoll(std::span<epoll_event> events, base::TimePoint deadline);

  const std::chrono::microseconds spin_;
  shm::Memory memory_;
  shm::BellPage* page_;
  shm::Fd eventfd_;
  shm::Fd epoll_;
  std::atomic<bool> watching_{false};
  std::atomic<bool> resident_in_futex_{false};

  // Whoever holds the role.
  std::array<epoll_event, batch> ready_;
  std::atomic<int> ready_count_{0};  // Atomic, because the resident looks at it before it sleeps.
  int clears_ = 0;
  int spins_failed_ = 0;

  // The resident's own: what woke it, for when it gets the role.
  std::array<epoll_event, batch> resident_ready_;
  int resident_ready_count_ = 0;
};

}  // namespace farad::net
