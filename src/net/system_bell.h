#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "base/fd.h"
#include "net/bell.h"
#include "net/poller.h"
#include "net/yielding.h"
#include "shm/bell_page.h"

namespace farad::net {

/// The bell of a real worker. It lies in shared memory, so that peers in other processes ring it themselves: a futex
/// while there are only such peers, epoll with an eventfd once descriptors are watched.
///
/// The driver sleeps in an epoll of all descriptors, the resident in another one, which watches the first only while
/// the place is vacant. So what comes in while somebody drives, asleep or not, is the driver's and wakes nobody else.
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
  bool linger() override;
  void sleep_resident() override;
  void wake_resident() override;

  void watch(int fd, uint32_t events, uint64_t cookie) override;
  void rewatch(int fd, uint32_t events, uint64_t cookie) override;
  void unwatch(int fd) override;
  void again(uint64_t cookie, uint32_t events) override;
  void found(uint64_t cookie) override;
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
  using News = bool (SystemBell::*)();
  bool drivers_news();
  bool residents_news();
  /// Looks for news as long as that seems better than to sleep; true if there are any.
  bool look(Looks& looks, News news, base::TimePoint deadline);
  bool spin(Looks& looks, News news, base::TimePoint deadline);
  bool yield(Looks& looks, News news);

  /// Whether to try the descriptor that something came from lately, instead of asking which one has something. Then the
  /// next clear() makes it ready.
  bool guess();

  /// Appends to ready_ what there is.
  void wait_in_epoll(base::TimePoint deadline);
  /// Whether what comes into epoll_ wakes the resident; once.
  void arm_resident(bool armed);

  const std::chrono::microseconds spin_;
  shm::Memory memory_;
  shm::BellPage* page_;
  base::Fd eventfd_;           // Makes epoll_ readable.
  base::Fd epoll_;             // Where the driver sleeps.
  base::Fd resident_eventfd_;  // Makes resident_epoll_ readable.
  base::Fd resident_epoll_;    // Where the resident sleeps; watches epoll_.
  std::atomic<bool> watching_{false};
  std::atomic<bool> armed_{false};
  std::atomic<bool> epoll_has_news_{false};  // The resident was woken because of it.
  std::atomic<bool> guessable_{false};       // The last two finds were at the same descriptor, and no guess since.
  std::atomic<bool> guessed_{false};

  // Whoever holds the role.
  std::vector<epoll_event> ready_;
  std::vector<epoll_event> taken_;
  int clears_ = 0;
  uint64_t last_found_ = UINT64_MAX;
  Looks drivers_looks_;
  // The resident.
  Looks residents_looks_;
};

}  // namespace farad::net
