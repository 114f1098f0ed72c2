#pragma once

#include <farad/detail/function.h>
#include <farad/detail/packet.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "net/transport.h"
#include "rpc/interceptor.h"
#include "rpc/protocol.h"

namespace farad::rpc {

/// What became of a call.
struct Outcome {
  base::Status status;             ///< of the way there and back
  std::optional<Failure> failure;  ///< what went wrong at the callee
  detail::Packet result;
};

/// A call that waits for its reply.
struct PendingCall {
  base::Rank to;
  Callee callee;
  base::TimePoint deadline = base::never;
  base::TimePoint since;
  std::function<void(Outcome&&)> done;           ///< short: called on the driving thread, or on whoever fails the call
  base::Incarnation incarnation{};               ///< 0 until sent
  std::shared_ptr<const void> keep = {};         ///< what must stay until it has ended there, also if it is given up
  std::shared_ptr<Interceptor::Made> made = {};  ///< what a layer above adds to it
};

/// The calls of a worker that wait for a reply. Whoever takes one completes it, so each ends exactly once. Any thread.
///
/// A call that is given up may not even have arrived, and must find its object when it does. So what it keeps stays,
/// until its callee tells that it has ended or is lost. To give it up and to note that is one step: its reply comes
/// before or after, never in between.
class PendingCalls {
 public:
  /// `first` must differ between two starts of a worker, or a late reply could be taken for another call's.
  explicit PendingCalls(uint64_t first) : next_(first) {}

  uint64_t add(PendingCall call) EXCLUDES(mutex_);
  /// It went to this incarnation. If that is lost already, the call is given back to be failed. Its time runs out only
  /// from here on: otherwise its callee could be told that it was given up before it has heard of it.
  std::optional<PendingCall> sent(uint64_t id, base::Incarnation incarnation) EXCLUDES(mutex_);
  std::optional<PendingCall> take(uint64_t id) EXCLUDES(mutex_);
  std::vector<PendingCall> take_all_of(net::Peer lost) EXCLUDES(mutex_);
  std::vector<PendingCall> take_all() EXCLUDES(mutex_);

  /// Takes it because its caller waits no longer. What it keeps stays here.
  std::optional<PendingCall> give_up(uint64_t id) EXCLUDES(mutex_);
  /// The same with those whose time is up, with their numbers; and when to look again.
  std::vector<std::pair<uint64_t, PendingCall>> give_up_expired(base::TimePoint now, base::TimePoint& next)
      EXCLUDES(mutex_);
  /// What a call kept that was given up, and that has ended; null if nothing. Its end may send: not under a lock.
  using Kept = std::shared_ptr<const void>;
  Kept let_go(uint64_t id) EXCLUDES(mutex_);
  std::vector<Kept> let_go_of(net::Peer lost) EXCLUDES(mutex_);
  std::vector<Kept> let_go_all() EXCLUDES(mutex_);

  size_t size() const EXCLUDES(mutex_);
  size_t given_up() const EXCLUDES(mutex_);  ///< how many that keep something
  /// Calls `look` for each, in the order they were made, under the lock.
  void each(const std::function<void(const PendingCall&)>& look) const EXCLUDES(mutex_);

 private:
  std::optional<PendingCall> take_locked(uint64_t id) REQUIRES(mutex_);
  std::optional<PendingCall> give_up_locked(uint64_t id) REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  uint64_t next_ GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, PendingCall> calls_ GUARDED_BY(mutex_);
  std::set<std::pair<base::TimePoint, uint64_t>> deadlines_ GUARDED_BY(mutex_);
  std::map<uint64_t, std::pair<net::Peer, Kept>> given_up_ GUARDED_BY(mutex_);
  std::set<net::Peer> lost_ GUARDED_BY(mutex_);  // Incarnations that ended; few, since peers seldom do.
};

}  // namespace farad::rpc
