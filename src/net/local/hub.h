#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/mutex.h"
#include "net/bell.h"
#include "net/transport.h"
#include "wire/message.h"

namespace farad::net {

struct LocalLink;

/// What waits for a worker: a message of a link, or the link's end.
struct LocalArrival {
  std::shared_ptr<LocalLink> link;
  int side = 0;  // which end of the link this is
  bool over = false;
  wire::Message message;
  uint64_t bytes = 0;
};

/// One worker's letter box, for the others of its process.
struct LocalPlace {
  LocalPlace(base::Rank owner, Bell& bell, uint64_t queue_bytes) : rank(owner), limit(queue_bytes), bell_(&bell) {}

  /// Wakes the owner, unless it has closed. Not under `mutex`: it may make a system call.
  void ring() EXCLUDES(bell_mutex_);
  /// Lets the owner know that a box of another that was full is not any more.
  void tell_of_room() EXCLUDES(mutex, bell_mutex_);
  /// No bell is rung any more once this returned.
  void unhook() EXCLUDES(bell_mutex_);

  const base::Rank rank;
  const uint64_t limit;  // for what each of the others may have waiting here

  base::Mutex mutex;
  bool closed GUARDED_BY(mutex) = false;
  bool room GUARDED_BY(mutex) = false;  // A box of another that was full is not any more.
  std::deque<LocalArrival> arrivals GUARDED_BY(mutex);
  std::atomic<bool> any{false};  // Arrivals or room: so that finding nothing costs the driver one load.
  std::map<base::Rank, std::shared_ptr<LocalLink>> links GUARDED_BY(mutex);  // to peers that are open
  std::map<base::Rank, uint64_t> lives GUARDED_BY(mutex);                    // incarnations so far

 private:
  base::Mutex bell_mutex_;
  Bell* bell_ GUARDED_BY(bell_mutex_);
};

/// The connection of two places; ends when one of them closes.
struct LocalLink {
  struct End {
    std::shared_ptr<LocalPlace> place;
    base::Incarnation incarnation;
    std::atomic<bool> named{false};  // The layer above this end knows of the incarnation.
    // Guarded by the mutex of the other end's place, where what this end sends lies:
    bool open = true;
    bool refused = false;
    uint64_t queued = 0;

    /// So much is not queued any more. True if this end was refused before and would not be now: it is to be told.
    bool free(uint64_t bytes, uint64_t limit) {
      queued -= bytes;
      return queued < limit && std::exchange(refused, false);
    }
  };
  End ends[2];

  int side_of(const LocalPlace& place) const { return ends[0].place.get() == &place ? 0 : 1; }
};

/// Where the Workers of one process find each other, by addresses that mean nothing in any other process.
/// Any thread may call.
class LocalHub {
 public:
  LocalHub();

  /// The one that every Worker of this process uses: they must meet somewhere, and hold no more in common than this.
  static std::shared_ptr<LocalHub> of_process();

  /// The address under which the others find `place`, until close().
  std::string open(const std::shared_ptr<LocalPlace>& place);
  /// Whether a worker of this process is open under that address.
  bool reaches(const std::string& address);
  /// The link of `from` to the place at `address`, made if there is none; null if nobody is open there.
  std::shared_ptr<LocalLink> connect(const std::shared_ptr<LocalPlace>& from, base::Rank to,
                                     const std::string& address);
  /// Ends the links of `place`; its peers are told, and nothing reaches it any more.
  void close(LocalPlace& place, const std::string& address);

 private:
  std::shared_ptr<LocalPlace> find(const std::string& address) REQUIRES(mutex_);

  const std::string token_;  // Differs in every process, and in a fork from its parent.
  base::Mutex mutex_;        // Taken before that of a place.
  uint64_t next_ GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::shared_ptr<LocalPlace>> open_ GUARDED_BY(mutex_);
};

}  // namespace farad::net
