#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "net/bell.h"
#include "net/poller.h"
#include "net/tcp/control.h"
#include "net/tcp/link.h"
#include "net/tcp/news.h"
#include "net/tcp/outbox.h"
#include "net/transport.h"
#include "net/trust/secret.h"
#include "wire/buffer_pool.h"
#include "wire/limits.h"

namespace farad::net {

struct TcpOptions {
  base::Rank self;
  int size = UINT16_MAX;  ///< of the group: whoever says that it has a rank beyond is a stranger
  uint64_t birth = 0;     ///< of this process, see Member; 0 draws one
  Secret secret;
  wire::Limits limits;
  /// The same for the whole group, because it also says how often to give a sign of life. 0: nobody is lost by silence.
  std::chrono::milliseconds lost_after{3'000};
  size_t queue_bytes = size_t{64} << 20;
  std::shared_ptr<wire::BufferPool> pool;
  std::string bind_host;                      ///< empty: loopback without a secret, everywhere with one
  std::string meeting_host;                   ///< where the group meets, if that is known; see tcp::address_toward
  std::chrono::milliseconds greet_within{0};  ///< for a new connection to be up; 0 derives it from lost_after
  base::Log log{"tcp", base::Level::Warning};
};

/// Workers on different machines, or on one.
///
/// Connections are made by a thread of its own (tcp::Control). Once one is up, messages do not meet that thread any
/// more: send() writes from the calling thread what the socket takes, straight from where tensors lie, and poll()
/// reads into the memory where they will stay. What the socket does not take is queued, and poll() goes on with it.
///
/// Threads: as Transport says. close() once nobody polls any more.
class TcpTransport final : public Transport, private tcp::ControlEvents {
 public:
  /// Listens when it returns; farad::Error if it cannot. The others must outlive it.
  TcpTransport(TcpOptions options, Poller& poller, Bell& bell, Sink& sink, base::Runtime& runtime);
  ~TcpTransport() override;

  std::string_view name() const override { return "tcp"; }
  std::string address() const override { return control_.address(); }
  void set_address(base::Rank peer, const std::string& address) override;
  Sent send(base::Rank to, wire::Message& message, bool urgent) override;
  bool poll() override;
  void close() override;

 private:
  enum class Phase { Idle, Waiting, Up };  // Waiting: messages queue until there is a connection.

  /// All about one other worker but what only the driver needs. Never destroyed before the transport.
  struct Remote {
    Remote(base::Rank r, uint64_t queue_bytes) : rank(r), outbox(queue_bytes) {}
    const base::Rank rank;
    base::Mutex mutex;
    std::string address GUARDED_BY(mutex);
    Phase phase GUARDED_BY(mutex) = Phase::Idle;
    base::Incarnation incarnation GUARDED_BY(mutex){};  // The current one, or the last if Idle.
    std::shared_ptr<tcp::Link> link GUARDED_BY(mutex);  // If Up.
    tcp::Outbox outbox GUARDED_BY(mutex);
    bool wrote GUARDED_BY(mutex) = false;  // Since the last tick.
    base::TimePoint wrote_at GUARDED_BY(mutex){};
    base::TimePoint heard_at GUARDED_BY(mutex){};
  };

  void on_up(base::Rank peer, std::unique_ptr<tcp::Stream> stream, const std::string& address) override;
  void on_unreachable(Peer peer, const base::Status& why) override;
  bool is_wanted(Peer peer) override;
  void on_tick() override;

  Remote& remote(base::Rank rank) EXCLUDES(remotes_mutex_);
  std::vector<Remote*> all_remotes() EXCLUDES(remotes_mutex_);
  base::Status may_send(const Remote& remote) const REQUIRES(remote.mutex);
  void begin(Remote& remote) REQUIRES(remote.mutex);
  void transmit(Remote& remote, wire::Outgoing frame) REQUIRES(remote.mutex);
  void write_queued(Remote& remote) REQUIRES(remote.mutex);
  /// If senders were refused before and there is room now.
  void tell_of_room(Remote& remote) REQUIRES(remote.mutex);
  bool written(Remote& remote, const tcp::Io& io) REQUIRES(remote.mutex);
  void end(Remote& remote, base::Code code, const std::string& why) REQUIRES(remote.mutex);
  void end_all();
  void check_pulse(Remote& remote, base::TimePoint now, bool overslept) EXCLUDES(remote.mutex);

  bool tell_news();
  void handle(const epoll_event& event);

  const TcpOptions options_;
  Poller& poller_;
  Bell& bell_;
  Sink& sink_;
  base::Runtime& runtime_;
  const base::Duration tick_;
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> next_cookie_{1};
  std::atomic<bool> made_room_{false};  // Since the last poll, for somebody who was refused.
  tcp::News news_;

  mutable base::Mutex remotes_mutex_;
  std::unordered_map<base::Rank, std::unique_ptr<Remote>> remotes_ GUARDED_BY(remotes_mutex_);

  // The driver's.
  std::unordered_map<uint64_t, std::shared_ptr<tcp::Link>> links_;  // By cookie.
  std::vector<char> scratch_;

  base::TimePoint last_tick_;  // The control thread's.
  tcp::Control control_;       // Last: its thread must end before anything above goes.
};

}  // namespace farad::net
