#include "net/shm/monitor.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/futex.h"

namespace farad::net {
namespace {

using std::chrono::milliseconds;

/// Often enough that many beats must have been missed before a peer is given up.
base::Duration tick_for(milliseconds lost_after) {
  if (lost_after.count() == 0) return milliseconds(100);
  return std::clamp(lost_after / 16, milliseconds(1), milliseconds(100));
}
/// A peer is given up so long before lost_after is over: its last beat is noticed up to one tick late, and so is that
/// there is no other.
constexpr int ticks_ahead = 2;

}  // namespace

ShmMonitor::ShmMonitor(shm::BellPage& own_bell, milliseconds lost_after)
    : own_bell_(own_bell), lost_after_(lost_after), tick_(tick_for(lost_after)), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "farad-monitor");
}

ShmMonitor::~ShmMonitor() {
  stopping_.store(true);
  wake();
  thread_.join();
}

void ShmMonitor::wake() {
  doorbell_.fetch_add(1);
  base::futex_wake(doorbell_, 1);
}

base::Status ShmMonitor::hold(std::shared_ptr<ShmLink> link) {
  auto entry = std::make_shared<Watched>();
  entry->link = std::move(link);
  {
    base::Lock lock(mutex_);
    watched_.push_back(entry);
  }
  wake();
  while (true) {
    const uint32_t count = held_count_.load();
    {
      base::Lock lock(mutex_);
      if (entry->held || entry->dropped) return entry->refused;
    }
    base::futex_wait(held_count_, count, base::never);
  }
}

void ShmMonitor::watch(const std::shared_ptr<ShmLink>& link, std::function<void(base::Status)> on_end) {
  {
    base::Lock lock(mutex_);
    for (auto& entry : watched_) {
      if (entry->link != link) continue;
      entry->beats = link->peer_bell().beats.load();
      entry->last_beat = base::Clock::now();
      entry->on_end = std::move(on_end);
    }
  }
  wake();
}

void ShmMonitor::drop(const std::shared_ptr<ShmLink>& link) {
  {
    base::Lock lock(mutex_);
    for (auto& entry : watched_) {
      if (entry->link == link) entry->dropped = true;
    }
  }
  wake();
}

bool ShmMonitor::hung_up(const Watched& entry) const {
  pollfd socket{.fd = entry.link->socket.get(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&socket, 1, 0) > 0;
}

base::Status ShmMonitor::judge(Watched& entry, base::TimePoint now) const {
  if (entry.link->peer_lifeline().broken()) {
    return {base::Code::PeerLost, "its process ended without closing (killed, crashed, or exited)"};
  }
  if (hung_up(entry)) return {base::Code::PeerLost, "it hung up"};
  const uint64_t beats = entry.link->peer_bell().beats.load(std::memory_order_relaxed);
  if (beats != entry.beats) {
    entry.beats = beats;
    entry.last_beat = now;
  } else if (lost_after_.count() > 0 && now - entry.last_beat >= lost_after_ - tick_ * ticks_ahead) {
    const auto silent = std::chrono::duration_cast<milliseconds>(now - entry.last_beat).count();
    return {base::Code::PeerLost, "no sign of life for " + std::to_string(silent) + " ms (lost_after is " +
                                      std::to_string(lost_after_.count()) +
                                      " ms; it is stopped, or its machine is overloaded)"};
  }
  return {};
}

void ShmMonitor::run() {
  std::vector<std::shared_ptr<Watched>> entries, dropped;
  std::vector<shm::Lifeline*> lines;
  auto last_look = base::Clock::now();
  while (true) {
    const uint32_t rung = doorbell_.load();
    const bool stopping = stopping_.load();
    own_bell_.beats.fetch_add(1, std::memory_order_relaxed);
    {
      base::Lock lock(mutex_);
      if (stopping) {
        for (auto& entry : watched_) entry->dropped = true;
      }
      for (auto& entry : watched_) {
        if (entry->held != entry->dropped) continue;
        if (entry->held) {
          entry->link->own_lifeline().release();
          entry->held = false;
        } else if (entry->refused = entry->link->own_lifeline().hold(); entry->refused.ok()) {
          entry->held = true;
        } else {
          entry->dropped = true;
        }
      }
      auto gone = std::stable_partition(watched_.begin(), watched_.end(), [](auto& e) { return !e->dropped; });
      dropped.assign(gone, watched_.end());
      watched_.erase(gone, watched_.end());
      entries.clear();
      std::copy_if(watched_.begin(), watched_.end(), std::back_inserter(entries),
                   [](auto& e) { return bool(e->on_end); });
    }
    held_count_.fetch_add(1);
    base::futex_wake(held_count_, INT32_MAX);
    dropped.clear();  // May unmap the link: not under the lock.
    if (stopping) return;

    const auto now = base::Clock::now();
    // If we slept much longer than asked, it was we who stood still: nobody's silence counts for that time.
    if (const auto late = now - last_look - tick_; late > tick_ * 2) {
      for (auto& entry : entries) entry->last_beat += late;
    }
    last_look = now;
    lines.clear();
    for (auto& entry : entries) {
      if (auto status = judge(*entry, now); !status.ok()) {
        std::exchange(entry->on_end, nullptr)(std::move(status));
      } else {
        lines.push_back(&entry->link->peer_lifeline());
      }
    }
    shm::Lifeline::wait_for_any(lines, doorbell_, rung, now + tick_);
  }
}

}  // namespace farad::net
