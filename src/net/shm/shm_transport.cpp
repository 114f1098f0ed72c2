#include "net/shm/shm_transport.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <utility>

namespace farad::net {
namespace {

/// Messages taken in from one peer before the next gets its turn.
constexpr int budget_per_look = 64;

}  // namespace

ShmTransport::ShmTransport(ShmOptions options, SystemBell& bell, Sink& sink)
    : options_(std::move(options)),
      bell_(bell),
      sink_(sink),
      address_(unguessable_address()),
      arena_(shm::Arena::make(options_.arena_bytes)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      orders_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      monitor_(bell.page(), options_.lost_after),
      peers_(static_cast<size_t>(options_.size)) {
  if (!stop_ || !orders_) shm::system_error("eventfd").raise();
  listen_on(address_, listener_).raise();
  acceptor_ = std::thread([this] { accept_all(); });
  connector_ = std::thread([this] { connect_all(); });
}

ShmTransport::~ShmTransport() { close(); }

void ShmTransport::close() {
  std::vector<ConnectionPtr> connections;
  {
    base::Lock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    connections = by_slot_;
  }
  (void)::eventfd_write(stop_.get(), 1);
  acceptor_.join();
  listener_.reset();  // Who waits in its queue hears at once that nobody will answer.
  connector_.join();
  for (auto& connection : connections) {
    if (!connection) continue;
    (void)connection->end();
    if (auto link = connection->link()) monitor_.drop(link);
  }
  base::Lock lock(mutex_);
  by_slot_.clear();
  slots_.clear();
  peers_.clear();
}

void ShmTransport::set_address(base::Rank peer, const std::string& address) {
  base::Lock lock(mutex_);
  peers_.at(peer.value).address = address;
}

Sent ShmTransport::send(base::Rank to, wire::Message& message, bool urgent) {
  while (true) {
    base::Status status;
    auto connection = connection_to(to, status);
    if (!connection) return {status, {}};
    status = connection->send(message, urgent);
    // It ended between the two lines above; the next one is a new life.
    if (status.code() == base::Code::Closed) continue;
    return {std::move(status), connection->peer.incarnation};
  }
}

ShmTransport::ConnectionPtr ShmTransport::connection_to(base::Rank rank, base::Status& status) {
  ConnectionPtr connection;
  {
    base::Lock lock(mutex_);
    if (closed_) {
      status = {base::Code::Closed, "[shm] the transport is closed"};
      return nullptr;
    }
    if (rank.value >= peers_.size() || peers_[rank.value].address.empty()) {
      status = {base::Code::Invalid, "[shm] no address of rank " + std::to_string(rank.value)};
      return nullptr;
    }
    auto& present = peers_[rank.value].connection;
    if (present && present->state() != ShmConnection::State::Over) return present;
    connection = begin(rank, status);
    if (!connection) return nullptr;
    to_connect_.push_back(connection);
  }
  (void)::eventfd_write(orders_.get(), 1);
  return connection;
}

ShmTransport::ConnectionPtr ShmTransport::begin(base::Rank rank, base::Status& status) {
  size_t slot = 0;
  while (slot < by_slot_.size() && by_slot_[slot]) ++slot;
  if (slot == shm::BellPage::slots) {
    status = {base::Code::Invalid, "[shm] more than " + std::to_string(shm::BellPage::slots) +
                                       " connections on this machine; use transport \"tcp\""};
    return nullptr;
  }
  const Peer peer{rank, base::Incarnation(++incarnations_)};
  auto connection = std::make_shared<ShmConnection>(peer, static_cast<uint32_t>(slot), options_.limits, options_.pool,
                                                    options_.queue_bytes);
  if (slot == by_slot_.size()) by_slot_.push_back(nullptr);
  slot_words_.store(static_cast<int>((by_slot_.size() + 63) / 64), std::memory_order_release);
  put(slot, connection);
  peers_[rank.value].connection = connection;
  return connection;
}

void ShmTransport::met(Acquaintance& peer, uint64_t birth) {
  if (peer.birth == birth) return;
  peer.birth = birth;
  peer.accepted = peer.connected = 0;
}

void ShmTransport::run_open(const ConnectionPtr& connection, const std::shared_ptr<ShmLink>& link) {
  std::shared_ptr<ShmLending> lending;
  if (auto process = shm::Process::behind(link->socket.get())) {
    lending = std::make_shared<ShmLending>(arena_, std::move(process), link->socket.get());
  }
  if (!connection->open(link, std::move(lending))) {
    link->page().over.store(1);
    link->ring_peer();
    return monitor_.drop(link);
  }
  monitor_.watch(link, [this, weak = std::weak_ptr(connection)](base::Status why) {
    auto lost = weak.lock();
    if (!lost) return;
    lost->doom(std::move(why));
    look_at(*lost);
  });
  look_at(*connection);  // The peer may have rung before the link was in place.
}

bool ShmTransport::poll() {
  bool did = false;
  auto& page = bell_.page();
  const int words = slot_words_.load(std::memory_order_acquire);
  for (int word = 0; word < words; ++word) {
    if (page.slot_bits[word].load(std::memory_order_relaxed) == 0) continue;
    uint64_t bits = page.slot_bits[word].exchange(0, std::memory_order_seq_cst);
    for (; bits != 0; bits &= bits - 1) {
      const size_t slot = word * 64 + __builtin_ctzll(bits);
      look_at_slots();
      if (slot < slots_.size() && slots_[slot]) did |= service(slots_[slot]);
    }
  }
  if (did) look_at_slots();  // What has ended is let go of now, not with the next message.
  return did;
}

void ShmTransport::put(size_t slot, ConnectionPtr connection) {
  by_slot_[slot] = std::move(connection);
  slot_changes_.fetch_add(1, std::memory_order_release);
}

void ShmTransport::look_at_slots() {
  if (slot_changes_.load(std::memory_order_acquire) == slots_seen_) return;
  std::vector<ConnectionPtr> now;
  {
    base::Lock lock(mutex_);
    now = by_slot_;
    slots_seen_ = slot_changes_.load(std::memory_order_relaxed);
  }
  slots_.swap(now);  // What has ended is destroyed without the lock.
}

bool ShmTransport::service(const ConnectionPtr& connection) {
  if (auto before = std::exchange(connection->predecessor, nullptr)) finish(before);
  bool did = false;
  const bool doomed = connection->doomed();
  const bool more = connection->take_in(sink_, budget_per_look, did);
  did |= connection->flush(sink_);
  if (more) {
    look_at(*connection);
  } else if (doomed || connection->doomed()) {
    finish(connection);
    did = true;
  }
  return did;
}

void ShmTransport::finish(const ConnectionPtr& connection) {
  if (connection->state() == ShmConnection::State::Over) return;
  const base::Status why = connection->end();
  if (why.code() == base::Code::Protocol) {
    options_.log.warning("[shm] dropped the connection to rank ", connection->peer.rank, ": ", why.message());
  }
  if (auto link = connection->link()) monitor_.drop(link);
  {
    base::Lock lock(mutex_);
    if (by_slot_[connection->slot] == connection) put(connection->slot, nullptr);
    auto& present = peers_[connection->peer.rank.value].connection;
    if (present == connection) present = nullptr;
  }
  sink_.on_lost(connection->peer, why);
}

}  // namespace farad::net
