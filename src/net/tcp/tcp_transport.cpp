#include "net/tcp/tcp_transport.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <random>
#include <system_error>

namespace farad::net {
namespace {

using base::Code;
using base::Status;
using namespace std::chrono_literals;

// Checks per lost_after; a sign of life is sent after six of them without one. A peer is given up at the second last
// check before lost_after is over: what it said last is noticed up to one check late, and so is its silence. Three
// signs must have been missed by then.
constexpr int ticks = 24;
constexpr int ticks_between_signs = 6;
constexpr int ticks_ahead = 2;

TcpOptions complete(TcpOptions options) {
  if (options.birth == 0) {
    std::random_device random;
    options.birth = (uint64_t{random()} << 32 | random()) | 1;
  }
  if (options.greet_within.count() == 0) {
    options.greet_within = options.lost_after.count() == 0 ? 10s : options.lost_after;
  }
  if (!options.pool) options.pool = wire::BufferPool::make(size_t{256} << 20);
  return options;
}

/// What the message will keep alive while it is queued.
uint64_t weight(const wire::Message& message) {
  uint64_t bytes = message.body.size();
  for (const at::Tensor& tensor : message.tensors) {
    if (!tensor.defined()) continue;
    if (tensor.layout() == at::kStrided) bytes += tensor.nbytes();
    if (tensor.layout() == at::kSparse) bytes += tensor._indices().nbytes() + tensor._values().nbytes();
  }
  return bytes;
}

std::string text(base::Rank rank) { return "rank " + std::to_string(rank.value); }

}  // namespace

TcpTransport::TcpTransport(TcpOptions options, Poller& poller, Bell& bell, Sink& sink, base::Runtime& runtime)
    : options_(complete(std::move(options))),
      poller_(poller),
      bell_(bell),
      sink_(sink),
      runtime_(runtime),
      tick_(options_.lost_after.count() == 0 ? 0ms : std::max<base::Duration>(options_.lost_after / ticks, 1ms)),
      news_(bell),
      scratch_(tcp::Link::scratch_bytes),
      last_tick_(runtime.now()),
      control_({options_.self, options_.size, options_.birth, options_.secret, options_.bind_host,
                options_.meeting_host, options_.greet_within, tick_, options_.log},
               *this, runtime) {
  control_.start();
}

TcpTransport::~TcpTransport() { close(); }

void TcpTransport::set_address(base::Rank peer, const std::string& address) {
  Remote& to = remote(peer);
  base::Lock lock(to.mutex);
  to.address = address;
}

TcpTransport::Remote& TcpTransport::remote(base::Rank rank) {
  base::Lock lock(remotes_mutex_);
  auto& entry = remotes_[rank];
  if (!entry) entry = std::make_unique<Remote>(rank, options_.queue_bytes);
  return *entry;
}

Sent TcpTransport::send(base::Rank to, wire::Message& message, bool urgent) {
  if (message.kind == tcp::heartbeat_kind) return {{Code::Invalid, "[tcp] send: kind 255 is the transport's own"}};
  Remote& peer = remote(to);
  const uint64_t bytes = weight(message);
  {
    base::Lock lock(peer.mutex);
    if (Status status = may_send(peer); !status.ok()) return {std::move(status)};
    if (!peer.outbox.admit(bytes, urgent)) {
      return {{Code::Busy, "[tcp] send to " + text(to) + ": " + std::to_string(options_.queue_bytes) +
                               " bytes are queued already; wait until it has read some"}};
    }
  }
  // Without the lock, because tensors with gaps are copied here, and that may take long.
  wire::Outgoing frame;
  Status status = wire::Outgoing::make(message, options_.limits, frame);

  base::Lock lock(peer.mutex);
  peer.outbox.dismiss(bytes);
  if (status.ok()) status = may_send(peer);  // Once more: we may have been closed meanwhile.
  if (!status.ok()) {
    tell_of_room(peer);
    return {std::move(status)};
  }
  if (peer.phase == Phase::Idle) begin(peer);
  const base::Incarnation incarnation = peer.incarnation;
  transmit(peer, std::move(frame));
  tell_of_room(peer);
  return {{}, incarnation};
}

Status TcpTransport::may_send(const Remote& remote) const {
  if (closed_.load()) return {Code::Closed, "[tcp] send to " + text(remote.rank) + ": this worker is closed"};
  if (remote.phase != Phase::Idle || !remote.address.empty()) return {};
  return {Code::Invalid, "[tcp] send to " + text(remote.rank) + ": its address is unknown"};
}

void TcpTransport::begin(Remote& remote) {
  ++remote.incarnation.value;
  remote.phase = Phase::Waiting;
  control_.dial({remote.rank, remote.incarnation}, remote.address);
}

void TcpTransport::transmit(Remote& remote, wire::Outgoing frame) {
  if (remote.phase == Phase::Up && remote.outbox.empty()) {
    if (!written(remote, tcp::Outbox::write_directly(remote.link->stream(), frame)) || frame.done()) return;
    remote.link->watch_room(true);
  }
  remote.outbox.push(std::move(frame));
}

void TcpTransport::write_queued(Remote& remote) {
  std::vector<wire::Outgoing> unsent;
  const tcp::Io io = remote.outbox.write(remote.link->stream(), unsent);
  for (const wire::Outgoing& frame : unsent) {
    news_.push(tcp::Unsent{{remote.rank, remote.incarnation}, frame.stub(), frame.verdict()});
  }
  if (!written(remote, io)) return;
  remote.link->watch_room(!remote.outbox.empty());
  tell_of_room(remote);
}

void TcpTransport::tell_of_room(Remote& remote) {
  if (!remote.outbox.take_relief()) return;
  made_room_.store(true);
  bell_.ring();
}

bool TcpTransport::written(Remote& remote, const tcp::Io& io) {
  if (io.state == tcp::Io::State::Broken) {
    end(remote, Code::PeerLost, std::system_category().message(io.error));
    return false;
  }
  remote.wrote = true;
  return true;
}

void TcpTransport::end(Remote& remote, Code code, const std::string& why) {
  if (remote.link) remote.link->stream().shutdown();
  remote.phase = Phase::Idle;
  news_.push(tcp::Lost{{remote.rank, remote.incarnation},
                       {code, "[tcp] lost " + text(remote.rank) + ": " + why},
                       std::move(remote.link),
                       remote.outbox.clear()});
  remote.link.reset();
}

// --- The control thread's ---

void TcpTransport::on_up(base::Rank peer, std::unique_ptr<tcp::Stream> stream, const std::string& address) {
  Remote& to = remote(peer);
  base::Lock lock(to.mutex);
  to.address = address;
  if (to.phase == Phase::Up) end(to, Code::PeerLost, "it has connected anew");
  if (to.phase == Phase::Idle) {
    ++to.incarnation.value;
    to.phase = Phase::Waiting;
  }
  try {
    to.link = std::make_shared<tcp::Link>(next_cookie_++, Peer{peer, to.incarnation}, std::move(stream), poller_,
                                          options_.limits, options_.pool);
  } catch (...) {  // The system has no room to watch one more socket.
    return end(to, Code::PeerLost, base::status_of(std::current_exception()).message());
  }
  to.phase = Phase::Up;
  to.wrote_at = to.heard_at = runtime_.now();
  news_.push(tcp::Linked{to.link});
  if (!to.outbox.empty()) write_queued(to);
}

void TcpTransport::on_unreachable(Peer peer, const Status& why) {
  Remote& to = remote(peer.rank);
  base::Lock lock(to.mutex);
  if (to.phase == Phase::Waiting && to.incarnation == peer.incarnation) end(to, why.code(), why.message());
}

bool TcpTransport::is_wanted(Peer peer) {
  Remote& to = remote(peer.rank);
  base::Lock lock(to.mutex);
  return to.phase == Phase::Waiting && to.incarnation == peer.incarnation;
}

void TcpTransport::on_tick() {
  const base::TimePoint now = runtime_.now();
  // Were we stopped, or starved? Then so was whoever should have read what the others sent, and they are not to blame.
  const bool overslept = now - last_tick_ > tick_ * ticks_between_signs;
  last_tick_ = now;
  for (Remote* each : all_remotes()) check_pulse(*each, now, overslept);
}

void TcpTransport::check_pulse(Remote& remote, base::TimePoint now, bool overslept) {
  // Whoever holds it is writing just now, which is a sign of life; the next tick sees to the rest.
  if (!remote.mutex.try_lock()) return;
  if (remote.phase == Phase::Up) {
    if (std::exchange(remote.wrote, false)) {
      remote.wrote_at = now;
    } else if (remote.outbox.empty() && now - remote.wrote_at >= tick_ * ticks_between_signs) {
      remote.wrote_at = now;
      wire::Message sign;
      sign.kind = tcp::heartbeat_kind;
      wire::Outgoing frame;
      if (wire::Outgoing::make(sign, options_.limits, frame).ok()) transmit(remote, std::move(frame));
    }
  }
  if (remote.phase == Phase::Up) {  // Still: that write may have ended it.
    // What lies unread in the socket was sent by somebody alive; it is our driver who is late.
    if (overslept || remote.link->take_heard() || remote.link->stream().unread() > 0) {
      remote.heard_at = now;
    } else if (now - remote.heard_at >= options_.lost_after - tick_ * ticks_ahead) {
      const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(now - remote.heard_at).count();
      end(remote, Code::PeerLost,
          "nothing heard for " + std::to_string(silent) + " ms (lost_after is " +
              std::to_string(options_.lost_after.count()) + " ms)");
    }
  }
  remote.mutex.unlock();
}

// --- The driver's ---

bool TcpTransport::poll() {
  const auto ready = poller_.take_ready();
  bool did = made_room_.exchange(false);  // Perhaps by a sender, with nothing else for us to do.
  did |= tell_news();                     // First: it knows of links that `ready` may name.
  for (const epoll_event& event : ready) handle(event);
  did = !ready.empty() || did;
  return tell_news() || did;
}

bool TcpTransport::tell_news() {
  auto items = news_.take();
  for (tcp::News::Item& item : items) {
    if (auto* linked = std::get_if<tcp::Linked>(&item)) {
      links_.emplace(linked->link->cookie(), linked->link);
      // What was told of it before we knew it was passed over, and is not told again.
      poller_.again(linked->link->cookie(), EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    } else if (auto* lost = std::get_if<tcp::Lost>(&item)) {
      if (lost->link) links_.erase(lost->link->cookie());
      lost->link.reset();
      lost->dropped.clear();
      sink_.on_lost(lost->peer, lost->why);
    } else if (auto* unsent = std::get_if<tcp::Unsent>(&item)) {
      sink_.on_unsent(unsent->to, unsent->message, unsent->why);
    }
  }
  return !items.empty();
}

void TcpTransport::handle(const epoll_event& event) {
  const uint64_t cookie = event.data.u64;  // A copy: epoll_event is packed, and nothing may refer into it.
  const auto found = links_.find(cookie);
  if (found == links_.end()) return;  // Ended since.
  tcp::Link& link = *found->second;
  Remote& from = remote(link.who().rank);
  if (event.events & EPOLLOUT) {
    base::Lock lock(from.mutex);
    if (from.link.get() == &link) write_queued(from);
  }
  if (!(event.events & ~uint32_t{EPOLLOUT})) return;

  const Status status = link.receive(event.events, scratch_, sink_);
  if (status.ok()) return;
  if (status.code() == Code::Protocol) {
    options_.log.warning("[tcp] dropped the connection to ", text(link.who().rank), ": ", status.message());
  }
  base::Lock lock(from.mutex);
  if (from.link.get() == &link) end(from, status.code(), status.message());
}

void TcpTransport::close() {
  if (closed_.exchange(true)) return;
  end_all();  // Whoever sends from here on finds it closed, so nobody dials any more.
  control_.stop();
  end_all();  // What came up meanwhile.
  links_.clear();
  news_.take();  // Nobody is told; what it held goes with it.
}

void TcpTransport::end_all() {
  for (Remote* each : all_remotes()) {
    base::Lock lock(each->mutex);
    if (each->phase != Phase::Idle) end(*each, Code::Closed, "this worker is closed");
  }
}

std::vector<TcpTransport::Remote*> TcpTransport::all_remotes() {
  base::Lock lock(remotes_mutex_);
  std::vector<Remote*> all;
  for (auto& [rank, entry] : remotes_) all.push_back(entry.get());
  return all;
}

}  // namespace farad::net
