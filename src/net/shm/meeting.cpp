// How two workers of one machine come to share a link: the acceptor's and the connector's thread of ShmTransport.
// Neither waits for anybody in particular, so that a peer that is stopped delays no other.

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "net/shm/shm_transport.h"

namespace farad::net {
namespace {

using base::TimePoint;
using std::chrono::milliseconds;

/// A greeting is a few hundred bytes between processes of one machine. Who comes to us and takes longer than this, and
/// than lost_after, is stopped or no friend.
constexpr milliseconds least_hearing_time{2'000};
/// Where no silence counts as a loss, whoever waits for a first contact still hears at last that there is none.
constexpr milliseconds endless_greeting_time{10'000};
constexpr milliseconds listen_pause{50};
/// Of those who have not said who they are. Members need milliseconds for that, so who has been there longest is a
/// stranger.
constexpr size_t most_visitors = 256;
/// Until a crossed connection of the other side should be there.
constexpr milliseconds crossing_pause{2};
/// A peer that says again and again that it is connecting to us itself is given this long.
constexpr milliseconds crossing_time{10'000};

/// Sleeps until one of them is ready or the deadline has passed.
void sleep_on(std::vector<pollfd>& sockets, TimePoint deadline) {
  int wait_ms = -1;
  if (deadline != base::never) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - base::Clock::now()).count();
    wait_ms = static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
  }
  if (::poll(sockets.data(), sockets.size(), wait_ms) >= 0) return;
  for (auto& each : sockets) each.revents = 0;  // Interrupted.
}

}  // namespace

/// Somebody who has come to us.
struct ShmTransport::Visitor {
  Visitor(base::Fd socket, const Secret& secret, TimePoint until) : hearing(std::move(socket), secret), until(until) {}
  ShmHearing hearing;
  const TimePoint until;
};

/// A connection that we are to make.
struct ShmTransport::Call {
  ConnectionPtr connection;
  TimePoint begun;
  TimePoint until;  // When this try is given up, or the next one begins.
  std::shared_ptr<ShmLink> link = {};
  std::unique_ptr<ShmCaller> greeting = {};  // Null between two tries.
};

void ShmTransport::accept_all() {
  std::list<Visitor> visitors;  // In order of coming.
  std::vector<pollfd> sockets;
  TimePoint accept_again = base::Clock::now();
  while (true) {
    const bool listening = accept_again <= base::Clock::now();
    TimePoint next = listening ? base::never : accept_again;
    sockets = {{.fd = stop_.get(), .events = POLLIN, .revents = 0},
               {.fd = listening ? listener_.get() : -1, .events = POLLIN, .revents = 0}};
    for (auto& visitor : visitors) {
      sockets.push_back({.fd = visitor.hearing.socket.get(), .events = POLLIN, .revents = 0});
      next = std::min(next, visitor.until);
    }
    sleep_on(sockets, next);
    if (sockets[0].revents) return;
    size_t i = 2;
    for (auto visitor = visitors.begin(); visitor != visitors.end(); ++i) {
      visitor = hear(*visitor, sockets[i].revents != 0) ? visitors.erase(visitor) : std::next(visitor);
    }
    if (!sockets[1].revents) continue;
    base::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket) {
      const auto patience = std::max(greeting_time(), least_hearing_time);
      visitors.emplace_back(std::move(socket), options_.secret, base::Clock::now() + patience);
      if (hear(visitors.back(), true)) visitors.pop_back();
      if (visitors.size() > most_visitors) {
        options_.log.warning("[shm] dropped a connection: too many strangers, and it was the first of them");
        visitors.pop_front();
      }
    } else if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) {
      // Out of descriptors, most likely. The caller stays in the queue, so asking again at once would only spin.
      accept_again = base::Clock::now() + listen_pause;
    }
  }
}

bool ShmTransport::hear(Visitor& visitor, bool ready) {
  bool heard = false;
  base::Status status;
  if (ready) status = visitor.hearing.step(heard);
  if (status.ok() && !heard) {
    if (base::Clock::now() < visitor.until) return false;
    status = {base::Code::Timeout, "[shm] it did not say in time who it is"};
  }
  if (status.ok()) {
    admit(visitor.hearing);
  } else {
    options_.log.warning("[shm] dropped a connection: ", status.message());
  }
  return true;
}

void ShmTransport::admit(ShmHearing& from) {
  base::Status status;
  auto connection = decide(from.caller, status);
  if (!status.ok()) {
    // That we end is no news: members that leave say so to all, and some have gone by then.
    const auto level = status.code() == base::Code::Closed ? base::Level::Info : base::Level::Warning;
    options_.log.write(level, "[shm] refused rank " + std::to_string(from.caller.rank.value) + ": " + status.message());
    return;
  }
  if (!connection) {
    (void)answer_greeting(from.socket.get(), ShmWelcome::Crossed, own_bell(), 0, options_.birth);
    return;
  }
  std::shared_ptr<ShmLink> link = std::move(from.link);
  status = monitor_.hold(link);  // Before the answer: from then on the caller watches it.
  if (!status.ok()) {
    connection->doom({status.code(), "its link cannot be used: " + status.message()});
    return look_at(*connection);
  }
  status = answer_greeting(from.socket.get(), ShmWelcome::Yes, own_bell(), connection->slot, options_.birth);
  link->socket = std::move(from.socket);
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
  std::list<Call> calls;  // At most one for each peer.
  std::vector<pollfd> sockets;
  while (take_orders(calls)) {
    sockets = {{.fd = stop_.get(), .events = POLLIN, .revents = 0},
               {.fd = orders_.get(), .events = POLLIN, .revents = 0}};
    TimePoint next = base::never;
    for (auto& call : calls) {
      sockets.push_back({.fd = call.greeting ? call.greeting->socket() : -1, .events = POLLIN, .revents = 0});
      next = std::min(next, call.until);
    }
    sleep_on(sockets, next);
    size_t i = 2;
    for (auto call = calls.begin(); call != calls.end(); ++i) {
      call = go_on(*call, sockets[i].revents != 0) ? calls.erase(call) : std::next(call);
    }
  }
  for (auto& call : calls) hang_up(call);
}

bool ShmTransport::take_orders(std::list<Call>& calls) {
  eventfd_t count = 0;
  (void)::eventfd_read(orders_.get(), &count);
  std::deque<ConnectionPtr> orders;
  {
    base::Lock lock(mutex_);
    if (closed_) return false;
    orders.swap(to_connect_);
  }
  for (auto& connection : orders) {
    // A call to that peer that is still under way is for a connection that is over: nobody waits for its answer.
    const auto before = std::find_if(calls.begin(), calls.end(), [&](const Call& call) {
      return call.connection->peer.rank == connection->peer.rank;
    });
    if (before != calls.end()) {
      hang_up(*before);
      calls.erase(before);
    }
    const auto now = base::Clock::now();
    calls.push_back({.connection = std::move(connection), .begun = now, .until = now});
    if (go_on(calls.back(), false)) calls.pop_back();
  }
  return true;
}

bool ShmTransport::go_on(Call& call, bool ready) {
  const auto now = base::Clock::now();
  if (!call.greeting) return now >= call.until && ring_up(call);
  bool answered = false;
  base::Status status;
  if (ready) status = call.greeting->step(answered);
  if (status.ok() && !answered) {
    if (now < call.until) return false;
    status = {base::Code::Timeout, "it did not answer in " + base::to_text(greeting_time())};
  }
  if (!status.ok()) return fail(call, status);

  const ShmWelcome welcome = call.greeting->welcome;
  if (welcome == ShmWelcome::Yes) {
    {
      base::Lock lock(mutex_);
      auto& peer = peers_[call.connection->peer.rank.value];
      met(peer, call.greeting->birth);
      ++peer.connected;
    }
    run_open(call.connection, call.link);
    return true;
  }
  if (now >= call.begun + crossing_time) {
    return fail(call, {base::Code::Timeout, "it was connecting itself, but never got through"});
  }
  hang_up(call);
  call.until = now + crossing_pause;  // Crossed: theirs should arrive any moment.
  return false;
}

milliseconds ShmTransport::greeting_time() const {
  return options_.lost_after.count() == 0 ? endless_greeting_time : options_.lost_after;
}

bool ShmTransport::ring_up(Call& call) {
  ShmGreeting self{options_.self, options_.birth, 0, call.connection->slot, address_};
  std::string address;
  {
    base::Lock lock(mutex_);
    // Once the acceptor has taken it over (see decide), greeting would say that we connect anew.
    if (closed_ || !call.connection->ours) return true;
    auto& peer = peers_[call.connection->peer.rank.value];
    self.accepted = peer.accepted;
    address = peer.address;
  }
  if (call.connection->state() != ShmConnection::State::Connecting) return true;

  base::Fd socket;
  std::unique_ptr<ShmLink> made;
  auto status = connect_to(address, socket);
  if (const auto now = base::Clock::now(); status.code() == base::Code::Busy && now < call.begun + greeting_time()) {
    call.until = now + listen_pause;
    return false;
  }
  if (status.ok()) status = ShmLink::create(made);
  if (!status.ok()) return fail(call, status);
  call.link = std::move(made);
  status = monitor_.hold(call.link);  // Before the other side can watch it.
  if (!status.ok()) return fail(call, status);
  call.greeting =
      std::make_unique<ShmCaller>(std::move(socket), options_.secret, std::move(self), own_bell(), *call.link);
  call.until = base::Clock::now() + greeting_time();
  return go_on(call, true);
}

bool ShmTransport::fail(Call& call, const base::Status& why) {
  hang_up(call);
  base::Lock lock(mutex_);
  // Our call went to a former life, and meanwhile the new one has called us: that connection is none of ours.
  if (!call.connection->ours) return true;
  call.connection->doom({base::Code::PeerLost, "connecting failed: " + why.message()});
  look_at(*call.connection);
  return true;
}

void ShmTransport::hang_up(Call& call) {
  call.greeting.reset();
  if (call.link) monitor_.drop(call.link);
  call.link.reset();
}

}  // namespace farad::net
