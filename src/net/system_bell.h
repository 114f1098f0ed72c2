#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "net/bell.h"
#include "net/poller.h"
#include "net/yielding.h"
#include "shm/bell_page.h"

namespace farad::net {

/// The bell of a real worker. It lies in shared memory, so that peers in other processes ring it themselves: a futex
/// while there are only such peers, epoll with an eventfd once descriptors are watched.
class SystemBell final : public Bell, public Poller {
 public:
  /// `spin`: how long a sleeper looks before it sleeps, if whoever rang last runs on another core: waking across cores
  /// costs 50 us on some machines, looking costs nobody anything there. If it runs on the same core, that is given to
  /// it a few times instead, as yielding.h says. Zero does neither. Throws if the system is out of descriptors or
  /// memory.
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
  void again(uint64_t cookie, uint32_t events) override;
  std::span<const epoll_event> take_ready() override;

  shm::BellPage& page() { return *page_; }
  int page_fd() const { return memory_.fd(); }
  int eventfd() const { return eventfd_.get(); }

 private:
  static constexpr int batch = 64;
  /// How often clear() may come without a sleep until descriptors get their turn.
  static constexpr int clears_per_check = 32;

  /// What somebody who looks before it sleeps has learnt from the times before.
  struct Looks {
    int spins_failed = 0;
    Yielding yielding;
  };
  /// Looks for `wanted`, all of these bits of the state, as long as that seems better than to sleep; true if they came.
  bool look(Looks& looks, uint32_t wanted, base::TimePoint deadline);
  bool spin(Looks& looks, uint32_t wanted, base::TimePoint deadline);
  bool yield(Looks& looks, uint32_t wanted);
  bool has(uint32_t wanted) const { return (page_->state.load(std::memory_order_relaxed) & wanted) == wanted; }
  /// Appends what there is to `events`.
  void wait_in_epoll(std::vector<epoll_event>& events, base::TimePoint deadline);
  void wake_epoll();

  const std::chrono::microseconds spin_;
  shm::Memory memory_;
  shm::BellPage* page_;
  base::Fd eventfd_;
  base::Fd epoll_;
  std::atomic<bool> watching_{false};

  // What the resident was woken for while another drove.
  base::Mutex mutex_;
  std::vector<epoll_event> strays_ GUARDED_BY(mutex_);
  std::atomic<bool> has_strays_{false};

  // Whoever holds the role.
  std::vector<epoll_event> ready_;
  std::vector<epoll_event> taken_;
  std::atomic<int> clears_{0};  // Atomic, because the resident resets it too.
  Looks drivers_looks_;
  // The resident.
  Looks residents_looks_;
};

}  // namespace farad::net
