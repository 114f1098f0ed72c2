#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "net/poller.h"
#include "net/tcp/stream.h"
#include "net/transport.h"
#include "wire/incoming.h"

namespace farad::net::tcp {

/// The kind of message that only says "I live". The layers above must not use it; it never reaches them.
inline constexpr uint8_t heartbeat_kind = 0xff;

/// A connection that is up, from the driver's side: reads frames and delivers them. Watched by the poller as long as
/// it exists.
class Link {
 public:
  /// The pieces of the stream that are read at once.
  static constexpr size_t scratch_bytes = 64 << 10;

  Link(uint64_t cookie, Peer who, std::unique_ptr<Stream> stream, Poller& poller, const wire::Limits& limits,
       std::shared_ptr<wire::BufferPool> pool);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  uint64_t cookie() const { return cookie_; }
  Peer who() const { return who_; }
  /// For writing: under the lock of the peer's queue.
  Stream& stream() { return *stream_; }
  /// Whether to be told, once, that there is room for writing, now or later. Under the same lock.
  void watch_room(bool wanted);

  /// The driver only: reads what is there, a few times at most, and delivers every message that is whole. Not ok if
  /// the connection ended or what came in is not ours; then it is of no further use.
  base::Status receive(uint32_t events, std::span<char> scratch, Sink& sink);

  /// Any thread: whether anything was heard since the last such question.
  bool take_heard() { return heard_.exchange(false, std::memory_order_relaxed); }

 private:
  base::Status take_in(std::span<const char> bytes, Sink& sink);
  void deliver(Sink& sink);

  const uint64_t cookie_;
  const Peer who_;
  Poller& poller_;
  const std::unique_ptr<Stream> stream_;
  bool watching_room_ = false;
  std::atomic<bool> heard_{true};
  wire::Incoming incoming_;  // The driver's.
};

}  // namespace farad::net::tcp
