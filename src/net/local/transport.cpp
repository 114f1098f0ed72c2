#include "net/local/transport.h"

#include <utility>
#include <vector>

#include "net/local/as_value.h"
#include "wire/outgoing.h"

namespace farad::net {
namespace {

using base::Code;
using base::Status;

constexpr int messages_per_poll = 64;

std::string sending_to(base::Rank to) { return "[local] send to rank " + std::to_string(to.value) + ": "; }

}  // namespace

LocalTransport::LocalTransport(base::Rank self, std::shared_ptr<LocalHub> hub, Bell& bell, Sink& sink,
                               const wire::Limits& limits, size_t queue_bytes)
    : hub_(std::move(hub)),
      sink_(sink),
      limits_(limits),
      place_(std::make_shared<LocalPlace>(self, bell, queue_bytes)),
      address_(hub_->open(place_)) {}

LocalTransport::~LocalTransport() { close(); }

void LocalTransport::set_address(base::Rank peer, const std::string& address) {
  base::Lock lock(mutex_);
  addresses_[peer] = address;
}

Sent LocalTransport::send(base::Rank to, wire::Message& message, bool urgent) {
  uint64_t bytes = 0;
  if (auto status = wire::Outgoing::check(message, limits_, bytes); !status.ok()) return {std::move(status), {}};
  std::vector<at::Tensor> values;
  while (true) {
    std::shared_ptr<LocalLink> link;
    if (auto status = find_link(to, link); !status.ok()) return {std::move(status), {}};
    const int side = link->side_of(*place_);
    LocalPlace& far = *link->ends[1 - side].place;
    // Room first: copies are not made for a message that must wait.
    if (auto status = reserve(link->ends[side], far, bytes, urgent); !status.ok()) return {std::move(status), {}};
    if (values.empty()) {
      if (auto status = as_values(message, values); !status.ok()) {
        release(link->ends[side], far, bytes);
        return {std::move(status), {}};
      }
    }
    std::vector<at::Tensor> originals = std::exchange(message.tensors, std::move(values));
    if (deliver(link, side, message, bytes)) return {{}, link->ends[side].incarnation};
    values = std::exchange(message.tensors, std::move(originals));  // It has closed meanwhile. Perhaps it came back.
  }
}

Status LocalTransport::find_link(base::Rank to, std::shared_ptr<LocalLink>& link) {
  {
    base::Lock lock(place_->mutex);
    if (place_->closed) return {Code::Closed, sending_to(to) + "this worker is closed"};
    if (auto it = place_->links.find(to); it != place_->links.end()) {
      link = it->second;
      return {};
    }
  }
  std::string address;
  {
    base::Lock lock(mutex_);
    auto it = addresses_.find(to);
    if (it == addresses_.end()) return {Code::Invalid, sending_to(to) + "its address is not known"};
    address = it->second;
  }
  link = hub_->connect(place_, to, address);
  if (!link) return {Code::PeerLost, sending_to(to) + "that worker has closed"};
  return {};
}

Status LocalTransport::reserve(LocalLink::End& near, LocalPlace& far, uint64_t bytes, bool urgent) {
  base::Lock lock(far.mutex);
  if (near.queued >= far.limit && !urgent) {
    near.refused = true;
    return {Code::Busy, sending_to(far.rank) + std::to_string(near.queued) +
                            " bytes wait there already; send again when there is room"};
  }
  near.queued += bytes;
  return {};
}

void LocalTransport::release(LocalLink::End& near, LocalPlace& far, uint64_t bytes) {
  bool told = false;
  {
    base::Lock lock(far.mutex);
    told = near.free(bytes, far.limit);
  }
  if (told) near.place->tell_of_room();
}

bool LocalTransport::deliver(const std::shared_ptr<LocalLink>& link, int side, wire::Message& message, uint64_t bytes) {
  LocalLink::End& near = link->ends[side];
  LocalPlace& far = *link->ends[1 - side].place;
  {
    base::Lock lock(far.mutex);
    if (far.closed || !near.open) return false;
    near.named.store(true);
    LocalArrival arrival;
    arrival.link = link;
    arrival.side = 1 - side;
    arrival.message = std::exchange(message, {});
    arrival.bytes = bytes;
    far.arrivals.push_back(std::move(arrival));
    far.any.store(true, std::memory_order_release);
  }
  far.ring();
  return true;
}

bool LocalTransport::poll() {
  if (!place_->any.load(std::memory_order_acquire)) return false;
  bool did = false;
  for (int i = 0; i < messages_per_poll; ++i) {
    LocalArrival arrival;
    std::shared_ptr<LocalPlace> has_room;
    {
      base::Lock lock(place_->mutex);
      did |= std::exchange(place_->room, false);
      place_->any.store(!place_->arrivals.empty(), std::memory_order_relaxed);
      if (place_->arrivals.empty()) return did;
      arrival = std::move(place_->arrivals.front());
      place_->arrivals.pop_front();
      LocalLink::End& sender = arrival.link->ends[1 - arrival.side];
      if (sender.free(arrival.bytes, place_->limit)) has_room = sender.place;
    }
    if (has_room) has_room->tell_of_room();
    did = true;
    take(arrival);
  }
  place_->ring();  // There may be more, and whoever drives now need not be there for it.
  return did;
}

void LocalTransport::take(LocalArrival& arrival) {
  LocalLink::End& end = arrival.link->ends[arrival.side];
  const Peer from{arrival.link->ends[1 - arrival.side].place->rank, end.incarnation};
  if (!arrival.over) {
    end.named.store(true);
    sink_.on_message(from, std::move(arrival.message));
  } else if (end.named.load()) {
    sink_.on_lost(from, {Code::PeerLost, "[local] worker of rank " + std::to_string(from.rank.value) + " has closed"});
  }
}

void LocalTransport::close() { hub_->close(*place_, address_); }

}  // namespace farad::net
