#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "net/shm/connection.h"
#include "net/shm/greeting.h"
#include "net/shm/monitor.h"
#include "net/system_bell.h"
#include "net/transport.h"

namespace farad::net {

struct ShmOptions {
  base::Rank self;
  int size = 0;        // of the group
  uint64_t birth = 0;  // of this process, see Member
  Secret secret;
  wire::Limits limits;
  std::shared_ptr<wire::BufferPool> pool;
  size_t arena_bytes = 0;  // most that tensors on loan to others may take; beyond it they go through the rings
  size_t queue_bytes = 0;
  std::chrono::milliseconds lost_after{0};
  base::Log log;
};

/// Between processes of one machine: a ring of shared memory for each direction of each connection.
///
/// Threads: whoever sends copies into the ring; the driver reads, and goes on writing what did not fit. An acceptor and
/// a connector thread greet, each as many peers at once as there are, and a monitor watches over the living. None of
/// the three touches a message.
class ShmTransport final : public Transport {
 public:
  /// Listens at once. `bell` and `sink` must outlive it. Throws if the system is out of something.
  ShmTransport(ShmOptions options, SystemBell& bell, Sink& sink);
  ~ShmTransport() override;

  std::string_view name() const override { return "shm"; }
  std::string address() const override { return address_; }
  void set_address(base::Rank peer, const std::string& address) override;
  Sent send(base::Rank to, wire::Message& message, bool urgent) override;
  bool poll() override;
  void close() override;

 private:
  using ConnectionPtr = std::shared_ptr<ShmConnection>;

  /// What we know of a peer beyond its present connection.
  struct Acquaintance {
    std::string address;
    uint64_t birth = 0;
    uint64_t accepted = 0;   // connections of that life of the peer that we accepted
    uint64_t connected = 0;  // connections of ours that it accepted
    ConnectionPtr connection;
  };

  ConnectionPtr connection_to(base::Rank rank, base::Status& status) EXCLUDES(mutex_);
  ConnectionPtr begin(base::Rank rank, base::Status& status) REQUIRES(mutex_);
  void met(Acquaintance&, uint64_t birth) REQUIRES(mutex_);
  ShmBellFds own_bell() const { return {bell_.page_fd(), bell_.eventfd()}; }
  void look_at(const ShmConnection& connection) { bell_.page().ring_slot(connection.slot, bell_.eventfd()); }
  void run_open(const ConnectionPtr&, const std::shared_ptr<ShmLink>&);

  struct Visitor;
  struct Call;
  void accept_all();
  /// True once it is over, one way or another; likewise go_on() and those that it calls.
  bool hear(Visitor&, bool ready);
  void admit(ShmHearing&);
  ConnectionPtr decide(const ShmGreeting& caller, base::Status& status) EXCLUDES(mutex_);
  void connect_all();
  bool take_orders(std::list<Call>& calls) EXCLUDES(mutex_);
  bool go_on(Call&, bool ready) EXCLUDES(mutex_);
  bool ring_up(Call&) EXCLUDES(mutex_);
  /// How long a peer that was called has to answer.
  std::chrono::milliseconds greeting_time() const;
  bool fail(Call&, const base::Status& why) EXCLUDES(mutex_);
  void hang_up(Call&);

  bool service(const ConnectionPtr&);
  void finish(const ConnectionPtr&);
  void put(size_t slot, ConnectionPtr connection) REQUIRES(mutex_);
  void look_at_slots() EXCLUDES(mutex_);

  const ShmOptions options_;
  SystemBell& bell_;
  Sink& sink_;
  const std::string address_;
  base::Fd listener_;
  const std::shared_ptr<shm::Arena> arena_;
  base::Fd stop_;    // An eventfd that becomes readable at close().
  base::Fd orders_;  // One that does when there is something in to_connect_.
  ShmMonitor monitor_;

  base::Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
  uint64_t incarnations_ GUARDED_BY(mutex_) = 0;
  std::vector<Acquaintance> peers_ GUARDED_BY(mutex_);  // By rank.
  std::vector<ConnectionPtr> by_slot_ GUARDED_BY(mutex_);
  std::atomic<uint64_t> slot_changes_{0};  // Of by_slot_. Written under the lock.
  std::atomic<int> slot_words_{0};         // Of the bell page: those that by_slot_ has reached so far.
  std::deque<ConnectionPtr> to_connect_ GUARDED_BY(mutex_);

  // The driver's: by_slot_ as it last saw it, so that taking a message in needs neither the lock nor a count.
  std::vector<ConnectionPtr> slots_;
  uint64_t slots_seen_ = 0;

  std::thread acceptor_;
  std::thread connector_;
};

}  // namespace farad::net
