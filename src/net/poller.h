#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>

namespace farad::net {

/// File descriptors that the driver watches while it sleeps on its bell (level-triggered). A worker without any sleeps
/// on a futex, which is cheaper; the first watch() changes that.
class Poller {
 public:
  virtual ~Poller() = default;

  /// Any thread. `events` as in epoll (EPOLLIN, EPOLLOUT); `cookie` comes back in epoll_event::data.u64.
  virtual void watch(int fd, uint32_t events, uint64_t cookie) = 0;
  virtual void rewatch(int fd, uint32_t events, uint64_t cookie) = 0;
  /// Before the descriptor is closed. An event of it may still be among those already taken.
  virtual void unwatch(int fd) = 0;

  /// The driver only: what the last sleep or check found, each event once. Makes no system call.
  virtual std::span<const epoll_event> take_ready() = 0;
};

}  // namespace farad::net
