#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "base/mutex.h"
#include "net/bell.h"
#include "net/tcp/link.h"
#include "net/transport.h"
#include "wire/outgoing.h"

namespace farad::net::tcp {

/// A new connection for the driver to read from.
struct Linked {
  std::shared_ptr<Link> link;
};

/// An incarnation that is over, with what it leaves: these are destroyed where no lock is held.
struct Lost {
  Peer peer;
  base::Status why;
  std::shared_ptr<Link> link;
  std::deque<wire::Outgoing> dropped;
};

/// A message that was taken back.
struct Unsent {
  Peer to;
  wire::Message message;
  base::Status why;
};

/// What other threads have found out and the driver is to act on and tell, in order.
class News {
 public:
  using Item = std::variant<Linked, Lost, Unsent>;

  explicit News(Bell& bell) : bell_(bell) {}

  /// Any thread.
  void push(Item item) EXCLUDES(mutex_) {
    {
      base::Lock lock(mutex_);
      items_.push_back(std::move(item));
      any_.store(true, std::memory_order_release);
    }
    bell_.ring();
  }

  /// The driver only. Costs one load when there are none: a list, because an empty one holds no memory.
  std::list<Item> take() EXCLUDES(mutex_) {
    if (!any_.load(std::memory_order_acquire)) return {};
    base::Lock lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(items_, {});
  }

 private:
  Bell& bell_;
  std::atomic<bool> any_{false};
  base::Mutex mutex_;
  std::list<Item> items_ GUARDED_BY(mutex_);
};

}  // namespace farad::net::tcp
