#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "net/shm/link.h"

namespace farad::net {

/// Notices when a peer on this machine ended, stopped or hung up, and lets peers notice it of us: a thread that lives
/// as long as the worker, holds our lifelines, beats our pulse and watches those of the others.
class ShmMonitor {
 public:
  /// `lost_after` zero: a silent peer is never lost, an ended one is.
  ShmMonitor(shm::BellPage& own_bell, std::chrono::milliseconds lost_after);
  ~ShmMonitor();

  /// Takes our lifeline of this link; returns when it is held, so that the other side may watch it. Any thread. Fails
  /// if the other side keeps it from us; the link is not to be used then.
  base::Status hold(std::shared_ptr<ShmLink> link);
  /// From now on `on_end` is called, at most once, on the monitor's thread, when the other side is gone. The link must
  /// be attached and both lifelines held. Any thread.
  void watch(const std::shared_ptr<ShmLink>& link, std::function<void(base::Status)> on_end);
  /// Lets go of the lifeline and stops watching; `on_end` may be running or about to. Any thread, also from `on_end`.
  void drop(const std::shared_ptr<ShmLink>& link);

 private:
  struct Watched {
    std::shared_ptr<ShmLink> link;
    std::function<void(base::Status)> on_end;  // Empty before watch() and once called.
    uint64_t beats = 0;
    base::TimePoint last_beat;
    bool held = false;
    bool dropped = false;
    base::Status refused;  // Why it is dropped without having been held.
  };

  void run();
  void wake();
  bool hung_up(const Watched&) const;
  base::Status judge(Watched&, base::TimePoint now) const;

  shm::BellPage& own_bell_;
  const std::chrono::milliseconds lost_after_;
  const base::Duration tick_;

  base::Mutex mutex_;
  std::vector<std::shared_ptr<Watched>> watched_ GUARDED_BY(mutex_);
  std::atomic<uint32_t> doorbell_{0};
  std::atomic<uint32_t> held_count_{0};  // Of hold()s done; hold() sleeps on it.
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace farad::net
