#pragma once

#include "net/transport.h"

namespace farad::rpc {

/// Who takes messages of a kind of its own, beside calls. On the driving thread: short.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  virtual void on_message(net::Peer from, wire::Message&& message) = 0;
  virtual void on_lost(net::Peer peer, const base::Status& why) = 0;
  /// The worker ends, and nothing comes any more: whoever waits for it must not wait any longer. Any thread; twice is
  /// fine.
  virtual void close() = 0;
};

}  // namespace farad::rpc
