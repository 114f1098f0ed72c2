#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "net/tcp/stream.h"
#include "wire/outgoing.h"

namespace farad::net::tcp {

/// What waits to be written to one peer, and the measure of it. Tensors count in full though they are only referred
/// to, because it is this queue that keeps them alive. Guarded by its owner.
class Outbox {
 public:
  explicit Outbox(uint64_t limit) : limit_(limit) {}

  /// Reserves room for a message about to be sent, or says no. An empty box takes anything, or nothing larger than
  /// the limit could ever be sent.
  bool admit(uint64_t bytes, bool urgent);
  /// The reservation is over: the message was written, pushed or given up.
  void dismiss(uint64_t bytes) { reserved_ -= bytes; }

  bool empty() const { return frames_.empty(); }
  void push(wire::Outgoing frame);

  /// Writes a frame of which nothing is queued yet; for an empty box only.
  static Io write_directly(Stream& stream, wire::Outgoing& frame);
  /// Goes on with what is queued, up to a few megabytes. Frames that were taken back are appended to `unsent`.
  Io write(Stream& stream, std::vector<wire::Outgoing>& unsent);

  /// True once when there is room again after admit() said no.
  bool take_relief();

  /// Everything that was queued, to be destroyed where no lock is held.
  std::deque<wire::Outgoing> clear();

 private:
  const uint64_t limit_;
  std::deque<wire::Outgoing> frames_;
  uint64_t queued_ = 0;    // bytes of frames_ not yet written
  uint64_t reserved_ = 0;  // by senders between admit() and dismiss()
  bool refused_ = false;
};

}  // namespace farad::net::tcp
