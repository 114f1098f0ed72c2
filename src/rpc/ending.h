#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/gate.h"
#include "base/mutex.h"
#include "net/fabric.h"
#include "rpc/closing.h"

namespace farad::rpc {

/// When a worker may go: counts what it works on and the calls it exchanged with each peer, and waits, by the protocol
/// of closing.h, at barriers, to leave alone and to close together. Any thread, unless said otherwise.
class Ending {
 public:
  /// `name_of` is for messages.
  Ending(net::Fabric& fabric, std::function<std::string(base::Rank)> name_of);

  /// Around whatever may still make calls: calls of ours until they have ended, calls of others until they have been
  /// answered, continuations. One number for all, so that what passes from one to the next is never missing between
  /// them.
  void begin_work() { work_.enter(); }
  void end_work() { work_.leave(); }

  /// A call went to that life of a peer; to be said before the work that made it ends.
  void sent(net::Peer to);
  /// It did not after all.
  void unsent(net::Peer to);
  /// A call came; begins the work on it.
  void received(net::Peer from);

  void on_message(base::Rank from, const wire::Message& message);
  void on_alive(base::Rank rank) { closing_.on_alive(rank); }
  void on_lost(net::Peer peer);

  // These wait, so not where messages are taken in.
  void barrier();
  /// Returns when nothing is left to do here and all know that we leave.
  void wait_to_leave();
  /// Returns when the group is done, with those that were lost.
  base::Status wait_to_close();

  /// Nothing is waited for any more. False if it was called before.
  bool end() { return !ended_.exchange(true); }
  bool ended() const { return ended_.load(); }

 private:
  /// Calls that went to or came from one life of a peer. A later life begins anew, at both ends.
  struct Count {
    base::Incarnation incarnation{};
    bool lost = false;
    uint64_t sent = 0;
    uint64_t received = 0;
  };
  void count(net::Peer peer, uint64_t Count::* which, int64_t by) REQUIRES(mutex_);
  Activity activity();
  void report_activity();
  void wake_watchers();
  void wait_until(const std::function<bool()>& ready);
  base::Status lost_status(const std::string& doing) const;

  net::Fabric& fabric_;
  const std::function<std::string(base::Rank)> name_of_;
  base::Gate work_;
  std::atomic<bool> leaving_{false};  // Somebody waits for that, without the others.
  std::atomic<bool> ended_{false};

  mutable base::Mutex mutex_;
  std::vector<Count> counts_ GUARDED_BY(mutex_);  // By rank.
  uint64_t looks_ GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<net::Waiter>> watchers_ GUARDED_BY(mutex_);  // Woken at each change.

  Closing closing_;
};

}  // namespace farad::rpc
