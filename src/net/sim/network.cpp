#include "net/sim/network.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace farad::net::sim {
namespace {

using base::Code;
using base::Status;

Status lost(const Connection& connection, int side, const std::string& why) {
  return {Code::PeerLost, "[sim] worker of rank " + std::to_string(connection.peer_of(side).value) + ": " + why};
}

}  // namespace

Network::Network(Scheduler& scheduler, const Faults& faults) : scheduler_(scheduler), faults_(faults) {}

Network::~Network() = default;

Endpoint& Network::open(base::Rank rank, Process process, Bell& bell, size_t queue_bytes, base::Duration lost_after) {
  auto it = latest_.find(rank);
  TORCH_CHECK(it == latest_.end() || !it->second->open(), "[sim] open: rank ", rank.value,
              " is on the network already; close it first");
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->rank = rank;
  endpoint->serial = next_++;
  endpoint->process = process;
  endpoint->queue_bytes = queue_bytes;
  endpoint->lost_after = lost_after;
  endpoint->bell = &bell;
  latest_[rank] = endpoint.get();
  return *(endpoints_[endpoint->serial] = std::move(endpoint));
}

Endpoint* Network::find(uint64_t serial) {
  auto it = endpoints_.find(serial);
  return it == endpoints_.end() ? nullptr : it->second.get();
}

void Network::close(Endpoint& endpoint) {
  if (!endpoint.open()) return;
  endpoint.bell = nullptr;
  endpoint.inbox.clear();
  endpoint.connections.clear();
  // Not only those it knows: somebody may be connecting to it just now.
  std::vector<std::pair<std::shared_ptr<Connection>, int>> ended;
  for (const auto& [id, connection] : connections_) {
    for (int side : {0, 1}) {
      if (connection->ends[side].at == &endpoint && !connection->ends[side].over) ended.emplace_back(connection, side);
    }
  }
  for (const auto& [connection, side] : ended) {
    connection->ends[side].over = true;
    tell_of_end(connection, side);
  }
}

void Network::crash(base::Rank rank, Process process, Death death) {
  auto it = latest_.find(rank);
  if (it == latest_.end() || it->second->process != process || !it->second->open()) return;  // Died before it joined.
  it->second->vanished = death == Death::OfMachine;
  close(*it->second);
}

Status Network::may_send(Endpoint& from, base::Rank to) {
  if (!from.open()) {
    return {Code::Closed, "[sim] send to rank " + std::to_string(to.value) + ": this worker is closed"};
  }
  auto it = from.connections.find(to);
  if (it == from.connections.end()) return {};
  Connection::End& end = it->second->end_of(from);
  if (end.queued < from.queue_bytes) return {};
  end.refused = true;
  return {Code::Busy, "[sim] send to rank " + std::to_string(to.value) + ": " + std::to_string(end.queued) +
                          " bytes are on their way already; send again when there is room"};
}

base::Incarnation Network::send(Endpoint& from, Endpoint& to, Frame frame) {
  auto connection = connect(from, to);
  const int side = connection->side_of(from);
  Connection::End& end = connection->ends[side];
  end.named = true;
  end.queued += frame->size();
  scheduler_.trace().add(scheduler_.now(), Trace::Kind::Send, from.rank.value, to.rank.value, frame->size());
  const auto when = arrival_time(*connection, side, frame->size());
  if (scheduler_.random().chance(faults_.breaks)) {
    const int first_to_see = static_cast<int>(scheduler_.random().below(2));
    scheduler_.at(when, [this, connection, first_to_see] {
      finish(connection, first_to_see, lost(*connection, first_to_see, "the connection broke"));
    });
  } else {
    scheduler_.at(when, [this, connection, side, frame = std::move(frame)] { arrive(connection, side, frame); });
  }
  return end.incarnation;
}

std::shared_ptr<Connection> Network::connect(Endpoint& from, Endpoint& to) {
  if (auto it = from.connections.find(to.rank); it != from.connections.end()) {
    if (it->second->ends[1 - it->second->side_of(from)].at == &to) return it->second;
    // The peer was restarted and we were told its new address before we noticed.
    const auto old = it->second;
    finish(old, old->side_of(from), lost(*old, old->side_of(from), "was restarted"));
  }
  // The peer may be about to connect to us; then it is the same connection.
  auto it = to.connections.find(from.rank);
  if (to.open() && it != to.connections.end() && it->second->end_of(from).at == &from &&
      it->second->end_of(from).incarnation == base::Incarnation{} && !it->second->end_of(from).over) {
    const auto connection = it->second;
    accept(connection, connection->side_of(from));
    return connection;
  }
  auto connection = std::make_shared<Connection>();
  connection->id = next_++;
  connection->ends[0].at = &from;
  connection->ends[1].at = &to;
  connections_.emplace(connection->id, connection);
  accept(connection, 0);
  if (!to.open()) {
    connection->ends[1].over = true;
    connection->ends[1].end_held = !to.vanished && is_cut(*connection);  // Heard of when the cut has healed.
    if (!to.vanished && !is_cut(*connection)) {
      scheduler_.at(scheduler_.now() + delay(*connection), [this, connection] {
        finish(connection, 0, lost(*connection, 0, "nobody accepts connections there"));
      });
      return connection;
    }
  }
  watch_silence(connection);
  return connection;
}

void Network::accept(const std::shared_ptr<Connection>& connection, int side) {
  Endpoint& endpoint = *connection->ends[side].at;
  const base::Rank peer = connection->peer_of(side);
  if (connection->ends[side].incarnation != base::Incarnation{}) return;
  if (connection->ends[0].at == connection->ends[1].at && side == 1) {  // A worker that talks to itself.
    connection->ends[1].incarnation = connection->ends[0].incarnation;
    return;
  }
  if (auto it = endpoint.connections.find(peer); it != endpoint.connections.end()) {
    const auto old = it->second;
    finish(old, old->side_of(endpoint), lost(*old, old->side_of(endpoint), "connected anew"));
  }
  connection->ends[side].incarnation = base::Incarnation(++endpoint.lives[peer]);
  endpoint.connections[peer] = connection;
}

void Network::arrive(const std::shared_ptr<Connection>& connection, int from_side, const Frame& frame) {
  Connection::End& near = connection->ends[from_side];
  Connection::End& far = connection->ends[1 - from_side];
  const auto note = [&](Trace::Kind kind) {
    scheduler_.trace().add(scheduler_.now(), kind, near.at->rank.value, far.at->rank.value, frame->size());
  };
  if (near.over || far.over) return note(Trace::Kind::Drop);
  if (is_cut(*connection)) return near.held.push_back(frame);
  note(Trace::Kind::Arrive);
  accept(connection, 1 - from_side);
  far.at->inbox.push_back({connection, 1 - from_side, frame, {}});
  far.at->bell->ring();
}

void Network::taken(Connection& connection, int by, size_t bytes) {
  Connection::End& sender = connection.ends[1 - by];
  sender.queued -= bytes;
  if (!sender.refused || !sender.at->open() || sender.queued >= sender.at->queue_bytes) return;
  sender.refused = false;
  sender.at->room = true;
  sender.at->bell->ring();
}

void Network::finish(const std::shared_ptr<Connection>& connection, int side, const Status& why) {
  Connection::End& end = connection->ends[side];
  if (end.over) return;
  end.over = true;
  scheduler_.trace().add(scheduler_.now(), Trace::Kind::Lost, end.at->rank.value, connection->peer_of(side).value,
                         end.incarnation.value);
  if (end.at->open() && end.incarnation != base::Incarnation{}) {
    end.at->connections.erase(connection->peer_of(side));
    end.at->inbox.push_back({connection, side, nullptr, why});
    end.at->bell->ring();
  }
  tell_of_end(connection, side);
}

void Network::tell_of_end(const std::shared_ptr<Connection>& connection, int over_side) {
  const int other = 1 - over_side;
  if (connection->ends[other].over) {
    connections_.erase(connection->id);
    return;
  }
  if (connection->ends[over_side].at->vanished) return watch_silence(connection);
  scheduler_.at(scheduler_.now() + delay(*connection), [this, connection, other] { hear_of_end(connection, other); });
}

void Network::hear_of_end(const std::shared_ptr<Connection>& connection, int side) {
  if (is_cut(*connection)) {
    connection->ends[1 - side].end_held = true;
  } else {
    finish(connection, side, lost(*connection, side, "ended the connection"));
  }
}

base::TimePoint Network::arrival_time(Connection& connection, int from_side, size_t bytes) {
  const std::chrono::duration<double> on_the_line(static_cast<double>(bytes) / faults_.bytes_per_second);
  auto when = scheduler_.now() + delay(connection) + std::chrono::duration_cast<base::Duration>(on_the_line);
  if (scheduler_.random().chance(faults_.stalls)) when += faults_.stall;
  auto& last = connection.ends[from_side].last_arrival;
  if (!faults_.reorder) when = std::max(when, last);  // Events of one time keep their order.
  return last = when;
}

base::Duration Network::delay(const Connection& connection) {
  const auto drawn = scheduler_.random().between(faults_.least_delay, faults_.most_delay);
  auto it = slowness_.find(std::minmax(connection.ends[0].at->rank, connection.ends[1].at->rank));
  if (it == slowness_.end()) return drawn;
  return std::chrono::duration_cast<base::Duration>(std::chrono::duration<double>(drawn) * it->second);
}

}  // namespace farad::net::sim
