#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "wire/message.h"

namespace farad::net {

/// One life of one peer, as this worker sees it.
struct Peer {
  base::Rank rank;
  base::Incarnation incarnation;
  auto operator<=>(const Peer&) const = default;
};

/// What a transport tells the layer above. All calls come from the thread that drives (see driver.h), one at a time
/// for one worker, with no lock held; they must be short, and may send.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_message(Peer from, wire::Message&& message) = 0;
  /// That life of the peer is over: what was sent to it and has not arrived never will, and nothing of it comes any
  /// more. Said exactly once for each incarnation that send() returned or on_message() named, except at our own
  /// close().
  virtual void on_lost(Peer peer, const base::Status& why) = 0;
  /// A message was taken back because a tensor in it was changed while it was being written; the peer never sees it.
  /// `message` is all of it but the tensors.
  virtual void on_unsent(Peer to, const wire::Message& message, const base::Status& why) = 0;
};

/// What became of a send: the incarnation the message went to, if `status` is ok.
struct Sent {
  base::Status status;
  base::Incarnation incarnation{};
};

/// The contract of every backend.
///
/// Each message arrives exactly once, or on_unsent tells of it, or the peer's incarnation is lost, on both sides. A
/// broken connection ends the incarnation; the next send connects anew and returns the next one; nothing is replayed.
/// Messages between two workers may overtake each other as far as the layers above may assume.
///
/// A message's tensors belong to the transport until they are written. They are not copied where that can be avoided,
/// so whoever changes one meanwhile gets on_unsent, unless the message is one that its sender forgets.
class Transport {
 public:
  virtual ~Transport() = default;

  /// "local", "sim", "shm", "tcp".
  virtual std::string_view name() const = 0;

  /// How peers reach this end; goes into our member record. Empty if this transport has nothing to say.
  virtual std::string address() const = 0;

  /// Where a peer is to be found; may be told anew when a peer restarted. Any thread.
  virtual void set_address(base::Rank peer, const std::string& address) = 0;

  /// Any thread, the driver's included; never blocks. Connects on first use and queues meanwhile. Busy if the queue
  /// to that peer is over its limit, unless `urgent`: answers are urgent, because their number is bounded by what was
  /// asked. On failure the message is untouched.
  virtual Sent send(base::Rank to, wire::Message& message, bool urgent) = 0;

  /// The driver only: takes in what has arrived and goes on writing what is queued, for a bounded number of messages.
  /// True if anything was done, so that it is worth polling again before going to sleep. Where something is left, the
  /// bell has been rung: whoever polls may have no reason to come back.
  virtual bool poll() = 0;

  /// Ends every connection; peers see PeerLost, our own sink hears nothing more. Queued messages are dropped. Once.
  virtual void close() = 0;
};

}  // namespace farad::net
