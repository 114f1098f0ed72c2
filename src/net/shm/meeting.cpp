// How two workers of one machine come to share a link: the acceptor's and the connector's thread of ShmTransport.

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/futex.h"
#include "net/shm/shm_transport.h"

namespace farad::net {
namespace {

using std::chrono::milliseconds;

/// A greeting is a few hundred bytes between processes of one machine. Who takes longer is stopped or no friend.
constexpr milliseconds greeting_time{2'000};
constexpr int accept_pause_ms = 50;
/// Until a crossed connection of the other side should be there.
constexpr milliseconds crossing_pause{2};
/// A peer that is there but does not get round to greeting us is given this long.
constexpr milliseconds connect_time{10'000};

}  // namespace

void ShmTransport::accept_all() {
  while (true) {
    pollfd wait[2] = {{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                      {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    if (::poll(wait, 2, -1) < 0) continue;
    if (wait[1].revents) return;
    base::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket) {
      accept_one(std::move(socket));
    } else if (errno != EINTR && errno != ECONNABORTED) {
      // Out of descriptors, most likely. The caller stays in the queue, so asking again at once would only spin.
      ::poll(&wait[1], 1, accept_pause_ms);
    }
  }
}

void ShmTransport::accept_one(base::Fd socket) {
  const auto deadline = base::Clock::now() + greeting_time;
  ShmGreeting caller;
  std::unique_ptr<ShmLink> heard;
  if (auto status = hear_greeting(socket.get(), options_.secret, caller, heard, deadline); !status.ok()) {
    options_.log.warning("[shm] dropped a connection: ", status.message());
    return;
  }
  base::Status status;
  auto connection = decide(caller, status);
  if (!status.ok()) {
    options_.log.warning("[shm] refused rank ", caller.rank, ": ", status.message());
    return;
  }
  if (!connection) {
    (void)answer_greeting(socket.get(), ShmWelcome::Crossed, own_bell(), 0, options_.birth, deadline);
    return;
  }
  std::shared_ptr<ShmLink> link = std::move(heard);
  monitor_.hold(link);  // Before the answer: from then on the caller watches it.
  status = answer_greeting(socket.get(), ShmWelcome::Yes, own_bell(), connection->slot, options_.birth, deadline);
  link->socket = std::move(socket);
  if (!status.ok()) connection->doom({base::Code::PeerLost, "it hung up while connecting: " + status.message()});
  run_open(connection, link);
}

ShmTransport::ConnectionPtr ShmTransport::decide(const ShmGreeting& caller, base::Status& status) {
  base::Lock lock(mutex_);
  if (closed_) {
    status = {base::Code::Closed, "we are closing"};
    return nullptr;
  }
  if (caller.rank.value >= options_.size || caller.rank == options_.self) {
    status = {base::Code::Invalid, "no such rank beside us in a group of " + std::to_string(options_.size)};
    return nullptr;
  }
  auto& peer = peers_[caller.rank.value];
  peer.address = caller.address;
  const bool reborn = peer.birth != 0 && peer.birth != caller.birth;
  met(peer, caller.birth);

  auto present = peer.connection;
  const auto state = present ? present->state() : ShmConnection::State::Over;
  const bool failed = state == ShmConnection::State::Connecting && present->given_up();  // and is about to be told so
  if (state == ShmConnection::State::Connecting && !failed && options_.self < caller.rank) {
    // Both connect at once: the lower rank's connection is the one that counts. Should ours be on its way to a former
    // life of the peer, it fails, and the peer's next try finds nothing in its way.
    return nullptr;
  }
  if (!reborn && state == ShmConnection::State::Open && present->ours && caller.accepted < peer.connected) {
    return nullptr;  // It greeted us before it accepted the connection that we have.
  }
  ++peer.accepted;
  if (state == ShmConnection::State::Connecting && !failed) {
    present->ours = false;
    return present;
  }
  auto connection = begin(caller.rank, status);
  if (!connection) return nullptr;
  connection->ours = false;
  if (state == ShmConnection::State::Open) {
    present->doom({base::Code::PeerLost, reborn ? "its process was started anew" : "it connected anew"});
  }
  if (state != ShmConnection::State::Over) connection->predecessor = std::move(present);
  return connection;
}

void ShmTransport::connect_all() {
  while (true) {
    const uint32_t rung = to_connect_bell_.load();
    ConnectionPtr connection;
    {
      base::Lock lock(mutex_);
      if (closed_) return;
      if (!to_connect_.empty()) {
        connection = std::move(to_connect_.front());
        to_connect_.pop_front();
      }
    }
    connection ? connect_one(connection) : (void)base::futex_wait(to_connect_bell_, rung, base::never);
  }
}

void ShmTransport::connect_one(const ConnectionPtr& connection) {
  const auto deadline = base::Clock::now() + connect_time;
  while (!try_connect(connection, deadline)) {
    // Crossed: theirs should arrive any moment. A ring of the bell (another connection, or close) also ends the pause.
    base::futex_wait(to_connect_bell_, to_connect_bell_.load(), base::Clock::now() + crossing_pause);
  }
}

bool ShmTransport::try_connect(const ConnectionPtr& connection, base::TimePoint deadline) {
  ShmGreeting self{options_.self, options_.birth, 0, connection->slot, address_};
  std::string address;
  {
    base::Lock lock(mutex_);
    // Once the acceptor has taken it over (see decide), greeting would say that we connect anew.
    if (closed_ || !connection->ours) return true;
    auto& peer = peers_[connection->peer.rank.value];
    self.accepted = peer.accepted;
    address = peer.address;
  }
  if (connection->state() != ShmConnection::State::Connecting) return true;

  auto fail = [&](base::Status why) {
    base::Lock lock(mutex_);
    // Our call went to a former life, and meanwhile the new one has called us: that connection is none of ours.
    if (!connection->ours) return true;
    connection->doom({base::Code::PeerLost, "connecting failed: " + why.message()});
    look_at(*connection);
    return true;
  };
  if (base::Clock::now() >= deadline) return fail({base::Code::Timeout, "it did not answer"});
  base::Fd socket;
  if (auto s = connect_to(address, socket); !s.ok()) return fail(std::move(s));
  std::unique_ptr<ShmLink> made;
  if (auto s = ShmLink::create(made); !s.ok()) return fail(std::move(s));
  std::shared_ptr<ShmLink> link = std::move(made);
  monitor_.hold(link);  // Before the other side can watch it.
  ShmWelcome welcome{};
  uint64_t birth = 0;
  const auto until = std::min(deadline, base::Clock::now() + greeting_time);
  auto status = greet(std::move(socket), options_.secret, self, own_bell(), *link, welcome, birth, until);
  if (!status.ok() || welcome != ShmWelcome::Yes) {
    monitor_.drop(link);
    return status.ok() ? false : fail(std::move(status));
  }
  {
    base::Lock lock(mutex_);
    auto& peer = peers_[connection->peer.rank.value];
    met(peer, birth);
    ++peer.connected;
  }
  run_open(connection, link);
  return true;
}

}  // namespace farad::net
