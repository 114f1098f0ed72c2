#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/driver.h"
#include "net/transport.h"

namespace farad::test {

/// A Sink that keeps what it heard, in order, and lets a test wait for it.
class Recorder : public net::Sink {
 public:
  struct Heard {
    enum class What { Message, Lost, Unsent } what;
    net::Peer peer;
    wire::Message message;
    base::Status why;
  };
  using History = std::vector<Heard>;

  void on_message(net::Peer from, wire::Message&& message) override;
  void on_lost(net::Peer peer, const base::Status& why) override;
  void on_unsent(net::Peer to, const wire::Message& message, const base::Status& why) override;

  /// Called for every message, by the driving thread and before it is recorded. Set before the first one comes.
  std::function<void(net::Peer, const wire::Message&)> at_message;
  /// Whether messages are kept; where not, they are only counted. Set before the first one comes.
  bool keep_messages = true;

  /// Drives until `done` holds of what was heard; false if that takes longer than half a minute of the runtime's time.
  bool wait_until(net::Driver&, base::Runtime&, std::function<bool(const Recorder&)> done);

  /// How many so far. Any thread.
  size_t messages() const { return messages_; }
  size_t losses() const { return losses_; }
  size_t unsent() const { return unsent_; }

  /// For `done`, and for whenever nothing drives any more.
  const History& history() const { return history_; }
  std::vector<wire::Message> messages_from(base::Rank) const;
  size_t losses_of(base::Rank) const;

  /// A copy for any other time.
  History snapshot() const;

 private:
  struct Watch {
    std::function<bool(const Recorder&)> done;
    std::shared_ptr<net::Waiter> waiter;
  };
  void record(Heard heard);

  mutable base::Mutex mutex_;  // Guards history and watches; `done` runs under it.
  History history_;
  std::list<Watch> watches_;
  std::atomic<size_t> messages_{0};
  std::atomic<size_t> losses_{0};
  std::atomic<size_t> unsent_{0};
};

}  // namespace farad::test
