#include "net/sim/transport.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <utility>

#include "net/sim/world.h"
#include "wire/outgoing.h"

namespace farad::net::sim {
namespace {

constexpr int deliveries_per_poll = 64;

Frame whole_frame(wire::Outgoing& outgoing) {
  std::vector<char> bytes;
  bytes.reserve(outgoing.size());
  iovec slots[16];
  while (!outgoing.done()) {
    const int used = outgoing.gather(slots, 16);
    uint64_t gathered = 0;
    for (int i = 0; i < used; ++i) {
      const char* from = static_cast<const char*>(slots[i].iov_base);
      bytes.insert(bytes.end(), from, from + slots[i].iov_len);
      gathered += slots[i].iov_len;
    }
    outgoing.advance(gathered);
  }
  return std::make_shared<const std::vector<char>>(std::move(bytes));
}

}  // namespace

SimTransport::SimTransport(base::Rank self, World& world, Bell& bell, Sink& sink, const wire::Limits& limits,
                           size_t queue_bytes, std::chrono::milliseconds lost_after)
    : network_(world.network()),
      sink_(sink),
      limits_(limits),
      buffers_(world.buffers()),
      endpoint_(network_.open(self, world.scheduler().current_process(), bell, queue_bytes, lost_after)) {}

SimTransport::~SimTransport() { close(); }

std::string SimTransport::address() const { return std::to_string(endpoint_.serial); }

void SimTransport::set_address(base::Rank peer, const std::string& address) {
  uint64_t serial = 0;
  const auto parsed = std::from_chars(address.data(), address.data() + address.size(), serial);
  Endpoint* endpoint = parsed.ec == std::errc() ? network_.find(serial) : nullptr;
  TORCH_CHECK(endpoint && endpoint->rank == peer, "[sim] set_address: \"", address, "\" is no address of rank ",
              peer.value, " in this world");
  peers_[peer] = endpoint;
}

Sent SimTransport::send(base::Rank to, wire::Message& message, bool urgent) {
  auto peer = peers_.find(to);
  if (peer == peers_.end()) {
    return {{base::Code::Invalid, "[sim] send to rank " + std::to_string(to.value) + ": its address is not known"}, {}};
  }
  auto status = network_.may_send(endpoint_, to);
  if (!status.ok() && !(urgent && status.code() == base::Code::Busy)) return {std::move(status), {}};
  wire::Outgoing outgoing;
  status = wire::Outgoing::make(message, limits_, outgoing);
  if (!status.ok()) return {std::move(status), {}};
  return {{}, network_.send(endpoint_, *peer->second, whole_frame(outgoing))};
}

bool SimTransport::poll() {
  bool did = std::exchange(endpoint_.room, false);
  for (int i = 0; i < deliveries_per_poll && !endpoint_.inbox.empty(); ++i) {
    Arrival arrival = std::move(endpoint_.inbox.front());
    endpoint_.inbox.pop_front();
    take(arrival);
    did = true;
  }
  // Whoever drives now need not be there for the rest.
  if (!endpoint_.inbox.empty() && endpoint_.open()) endpoint_.bell->ring();
  return did;
}

void SimTransport::take(const Arrival& arrival) {
  Connection& connection = *arrival.connection;
  const int side = arrival.side;
  const Peer from{connection.peer_of(side), connection.ends[side].incarnation};
  if (!arrival.frame) {
    if (connection.ends[side].named) sink_.on_lost(from, arrival.why);
    return;
  }
  // A restarted peer that talks to us is where we answer to.
  peers_[from.rank] = connection.ends[1 - side].at;
  network_.taken(connection, side, arrival.frame->size());
  wire::Incoming incoming(limits_, buffers_);
  size_t consumed = 0;
  auto status = incoming.feed(*arrival.frame, consumed);
  if (status.ok() && !incoming.complete()) status = {base::Code::Protocol, "[sim] a frame ended early"};
  if (!status.ok()) return network_.finish(arrival.connection, side, status);
  connection.ends[side].named = true;
  sink_.on_message(from, incoming.take());
}

void SimTransport::close() { network_.close(endpoint_); }

}  // namespace farad::net::sim
