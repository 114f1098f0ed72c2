#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "net/shm/lending.h"
#include "net/shm/link.h"
#include "net/transport.h"
#include "wire/incoming.h"
#include "wire/outgoing.h"

namespace farad::net {

/// One life of the connection to one peer through shared memory. It exists from the first send on, queues until it is
/// open, and is never opened again once it is over.
class ShmConnection {
 public:
  ShmConnection(Peer peer, uint32_t slot, const wire::Limits& limits, std::shared_ptr<wire::BufferPool> pool,
                size_t queue_bytes);

  const Peer peer;
  const uint32_t slot;  ///< of our bell page

  enum class State { Connecting, Open, Over };
  State state() const { return state_.load(std::memory_order_acquire); }

  /// Any thread. Closed means that this life was over before: the caller begins another.
  base::Status send(wire::Message& message, bool urgent) EXCLUDES(mutex_);

  /// Connecting becomes Open, and what is queued begins to flow; false if it was over before.
  bool open(std::shared_ptr<ShmLink> link, std::shared_ptr<ShmLending> lending) EXCLUDES(mutex_);
  /// It is to end, for this reason; the first one counts. Any thread. The driver ends it once it has read what is
  /// there.
  void doom(base::Status why) EXCLUDES(mutex_);
  /// Whether somebody here wished it to end. Any thread; doomed() is for the driver, who also sees the other side's
  /// wish.
  bool given_up() const { return doomed_.load(std::memory_order_acquire); }

  // The driver only.

  /// Goes on writing what is queued. Messages that were taken back go to the sink.
  bool flush(Sink& sink) EXCLUDES(mutex_);
  /// Takes in up to `budget` messages. True if there may be more. A Protocol error dooms the connection.
  bool take_in(Sink& sink, int budget, bool& did);
  /// Whether it is to end, by our own wish or the other side's. Asked before take_in, so that what was written until
  /// then is still read.
  bool doomed() EXCLUDES(mutex_);
  /// Over from now on; the other side is told, what is queued is dropped. The reason it was doomed for.
  base::Status end() EXCLUDES(mutex_);

  /// The life before this one, if the peer began this one while that was not over yet: to be ended first. Set before
  /// the driver knows this one, the driver's from then on.
  std::shared_ptr<ShmConnection> predecessor;
  /// Who connected; set before it is open.
  bool ours = true;

  std::shared_ptr<ShmLink> link() const EXCLUDES(mutex_);

 private:
  /// Data that do not go through the ring, and where in the ring the frame ends that says where they are.
  struct Lent {
    uint64_t end;
    uint64_t bytes;
  };
  struct Unsent {
    wire::Message message;
    base::Status why;
  };

  /// Into the ring, as much as fits. True if anything did; asks to be told of room if not all did.
  bool write(wire::Outgoing& out) REQUIRES(mutex_);
  void write_queued() REQUIRES(mutex_);
  void note_what_is_left() REQUIRES(mutex_);
  /// To be called once a frame is in the ring as a whole.
  void note_lent(const wire::Outgoing& out) REQUIRES(mutex_);
  void forget_taken_in() REQUIRES(mutex_);
  bool has_room() EXCLUDES(mutex_);
  void look_for_room() REQUIRES(mutex_);
  bool look_for_link() EXCLUDES(mutex_);

  const wire::Limits limits_;
  const size_t queue_bytes_;

  mutable base::Mutex mutex_;  // Held while bytes are copied into the ring: that is what serialises senders.
  std::atomic<State> state_{State::Connecting};  // Written under the lock.
  std::shared_ptr<ShmLink> link_ GUARDED_BY(mutex_);
  std::shared_ptr<ShmLending> lending_ GUARDED_BY(mutex_);  // Null where large tensors go through the ring too.
  std::atomic<ShmLending*> lender_{nullptr};                // The same, once open; it stays as long as we do.
  std::deque<wire::Outgoing> queue_ GUARDED_BY(mutex_);
  std::deque<Lent> lent_ GUARDED_BY(mutex_);   // In the ring, and not known to be taken in.
  std::atomic<size_t> queued_bytes_{0};        // In the queue and lent. Written under the lock.
  bool refused_ GUARDED_BY(mutex_) = false;    // Somebody was, because of what is lent: to be told of room.
  bool made_room_ GUARDED_BY(mutex_) = false;  // Since the last flush().
  std::vector<Unsent> unsent_ GUARDED_BY(mutex_);
  base::Status doom_ GUARDED_BY(mutex_);

  // So that the driver need not take the lock to find that there is nothing to do.
  std::atomic<bool> doomed_{false};
  std::atomic<bool> has_queue_{false};  // Or something to tell of it.

  // The driver's.
  std::shared_ptr<ShmLink> reading_;  // link_, once seen.
  wire::Incoming incoming_;
};

}  // namespace farad::net
