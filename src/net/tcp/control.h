#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/runtime.h"
#include "net/tcp/stream.h"
#include "net/transport.h"
#include "net/trust/secret.h"

namespace farad::net::tcp {

/// What Control has to tell. On its own thread, one at a time, with no lock held.
class ControlEvents {
 public:
  virtual ~ControlEvents() = default;
  /// A connection to that peer is up, whoever dialed: both ends agree on it, and it replaces any other. `address` is
  /// where the peer says it listens.
  virtual void on_up(base::Rank peer, std::unique_ptr<Stream> stream, const std::string& address) = 0;
  /// What dial() was asked for came to nothing.
  virtual void on_unreachable(Peer peer, const base::Status& why) = 0;
  /// Whether that peer's incarnation still waits for a connection.
  virtual bool is_wanted(Peer peer) = 0;
  /// Every ControlOptions::tick, or later if the machine is busy.
  virtual void on_tick() = 0;
};

struct ControlOptions {
  base::Rank self;
  int size = 0;  ///< of the group
  uint64_t birth = 0;
  Secret secret;
  std::string bind_host;        ///< empty: loopback without a secret, everywhere with one
  std::string meeting_host;     ///< the group meets there: the address to announce is the one toward it; may be empty
  base::Duration greet_within;  ///< for a new connection to be up, from either side
  base::Duration tick{0};       ///< zero: none
  base::Log log;
};

/// Everything about connections that is slow and rare: listens, dials, shakes hands, and decides which of two
/// connections counts when both ends dialed at once (docs/design/trust.md). One thread of its own, with Asio.
class Control {
 public:
  /// Binds and listens; farad::Error if it cannot. Nothing is accepted before start().
  Control(ControlOptions options, ControlEvents& events, base::Runtime& runtime);
  ~Control();

  /// Where the others reach us. Any thread.
  const std::string& address() const { return address_; }
  void start();
  /// Any thread, before stop(). Ends in on_up or on_unreachable, unless `peer` is no longer wanted by then.
  void dial(Peer peer, std::string address);
  /// Ends the thread, the listening and every connection that is not up; no event comes once it returned. Not from an
  /// event.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;  // Until stop().
  std::string address_;
};

}  // namespace farad::net::tcp
