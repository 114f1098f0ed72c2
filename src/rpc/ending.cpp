#include "rpc/ending.h"

#include <farad/error.h>

#include <utility>

namespace farad::rpc {

using base::Code;
using base::Rank;
using base::Status;

Ending::Ending(net::Fabric& fabric, std::function<std::string(Rank)> name_of)
    : fabric_(fabric),
      name_of_(std::move(name_of)),
      work_([this] { report_activity(); }),
      counts_(fabric.size()),
      closing_(
          fabric.self().rank, fabric.size(),
          [this](Rank to, wire::Message message) {
            // Of one that was gone before we ever talked to it, nothing else will tell.
            if (fabric_.post(to, std::move(message)).status.code() == Code::PeerLost) closing_.on_lost(to);
          },
          [this] { wake_watchers(); }) {}

void Ending::sent(net::Peer to) {
  base::Lock lock(mutex_);
  count(to, &Count::sent, 1);
}

void Ending::unsent(net::Peer to) {
  {
    base::Lock lock(mutex_);
    count(to, &Count::sent, -1);
  }
  if (work_.watched()) report_activity();
}

void Ending::received(net::Peer from) {
  base::Lock lock(mutex_);
  count(from, &Count::received, 1);
  begin_work();
}

void Ending::count(net::Peer peer, uint64_t Count::* which, int64_t by) {
  auto& known = counts_[peer.rank.value];
  if (known.incarnation < peer.incarnation) known = {peer.incarnation};
  if (known.incarnation == peer.incarnation && !known.lost) known.*which += static_cast<uint64_t>(by);
}

void Ending::on_message(Rank from, const wire::Message& message) {
  // It may ask how we are. What we said last may be from before a call whose caller the asker has lost meanwhile, so
  // that nobody would miss it.
  if (work_.watched()) report_activity();
  closing_.on_message(from, message);
}

void Ending::on_lost(net::Peer peer) {
  {
    base::Lock lock(mutex_);
    if (auto& known = counts_[peer.rank.value]; known.incarnation <= peer.incarnation) known = {peer.incarnation, true};
  }
  // First, because what was reported last may be from before a call of that peer, which from now on does not count: we
  // may work on it and take ourselves to be idle.
  if (work_.watched()) report_activity();
  closing_.on_lost(peer.rank);
}

Activity Ending::activity() {
  Activity now;
  base::Lock lock(mutex_);
  for (const auto& known : counts_) {
    now.traffic.sent.push_back(known.sent);
    now.traffic.received.push_back(known.received);
  }
  // Last, and under the lock that all counting takes: if there is no work now, then all that was sent is counted.
  now.idle = work_.empty();
  now.look = ++looks_;
  return now;
}

void Ending::report_activity() {
  closing_.update(activity());
  if (leaving_.load()) wake_watchers();
}

void Ending::wake_watchers() {
  std::vector<std::shared_ptr<net::Waiter>> watchers;
  {
    base::Lock lock(mutex_);
    watchers.swap(watchers_);
  }
  for (auto& watcher : watchers) watcher->complete();
}

void Ending::wait_until(const std::function<bool()>& ready) {
  while (!ready()) {
    auto waiter = fabric_.driver().make_waiter();
    {
      base::Lock lock(mutex_);
      watchers_.push_back(waiter);
    }
    if (ready()) return;
    fabric_.driver().wait_aside(*waiter, base::never);
  }
}

Status Ending::lost_status(const std::string& doing) const {
  const auto lost = closing_.lost();
  if (lost.empty()) return {};
  std::string names;
  for (Rank rank : lost) names += (names.empty() ? "" : ", ") + name_of_(rank);
  return {Code::PeerLost, "[rpc] " + doing + ": lost " + names};
}

void Ending::barrier() {
  if (ended()) throw Closed("[rpc] barrier: this worker is closed");
  const uint64_t number = closing_.enter_barrier();
  Status lost;
  wait_until([&] {
    lost = lost_status("barrier");
    return closing_.barrier_passed(number) || !lost.ok() || ended();
  });
  if (closing_.barrier_passed(number) || !closing_.give_up_barrier(number)) return;
  lost.raise();
  throw Closed("[rpc] barrier: this worker was closed meanwhile");
}

void Ending::wait_to_leave() {
  leaving_.store(true);
  work_.watch();
  wait_until([&] { return work_.empty() || ended(); });
  closing_.leave();
  wait_until([&] { return closing_.all_know_we_left() || ended(); });
}

Status Ending::wait_to_close() {
  work_.watch();
  closing_.begin(activity());
  wait_until([&] { return closing_.confirmed() || ended(); });
  return lost_status("close");
}

}  // namespace farad::rpc
