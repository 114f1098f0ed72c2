#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>

namespace farad::net {

/// File descriptors that the driver watches while it sleeps on its bell. A worker without any sleeps on a futex, which
/// is cheaper; the first watch() changes that.
///
/// Edge-triggered: an event tells of a change and comes once, so whoever gets it reads or writes until there is no
/// more, or asks for it again(). Level-triggered ones would wake every thread that sleeps here, each time.
class Poller {
 public:
  virtual ~Poller() = default;

  /// Any thread. `events` as in epoll (EPOLLIN, EPOLLOUT); `cookie` comes back in epoll_event::data.u64.
  virtual void watch(int fd, uint32_t events, uint64_t cookie) = 0;
  virtual void rewatch(int fd, uint32_t events, uint64_t cookie) = 0;
  /// Before the descriptor is closed. An event of it may still be among those already taken.
  virtual void unwatch(int fd) = 0;

  /// The driver only: let take_ready() show this event once more, because it was not dealt with to the end.
  virtual void again(uint64_t cookie, uint32_t events) = 0;

  /// The driver only: something was read from this one. If it is the same one again and again, take_ready() may show it
  /// as readable on the mere guess that its next message has come: to read in vain is cheaper than to ask first.
  virtual void found(uint64_t cookie) = 0;

  /// The driver only: what the last sleep or check found, each event once. Makes no system call.
  virtual std::span<const epoll_event> take_ready() = 0;
};

}  // namespace farad::net
