#include <utility>

#include "net/sim/network.h"

namespace farad::net::sim {

void Network::break_connection(base::Rank a, base::Rank b) {
  auto found = latest_.find(a);
  if (found == latest_.end()) return;
  Endpoint& endpoint = *found->second;
  auto it = endpoint.connections.find(b);
  if (it == endpoint.connections.end()) return;
  const auto connection = it->second;
  finish(connection, connection->side_of(endpoint),
         {base::Code::PeerLost, "[sim] worker of rank " + std::to_string(b.value) + ": the connection was broken"});
}

void Network::slow_down(base::Rank a, base::Rank b, double factor) { slowness_[std::minmax(a, b)] = factor; }

uint64_t Network::cut(std::set<base::Rank> here, std::set<base::Rank> there) {
  scheduler_.trace().add(scheduler_.now(), Trace::Kind::Cut, here.size(), there.size());
  const uint64_t id = next_++;
  cuts_[id] = {std::move(here), std::move(there)};
  reconsider_silence();
  return id;
}

void Network::heal(uint64_t cut) {
  auto node = cuts_.extract(cut);
  if (!node) return;
  scheduler_.trace().add(scheduler_.now(), Trace::Kind::Heal, node.mapped().here.size(), node.mapped().there.size());
  reconsider_silence();
  for (const auto& [id, connection] : connections_) {
    if (is_cut(*connection)) continue;
    for (int side : {0, 1}) {
      Connection::End& end = connection->ends[side];
      for (Frame& frame : std::exchange(end.held, {})) {
        const auto when = arrival_time(*connection, side, frame->size());
        scheduler_.at(when, [this, connection = connection, side, frame] { arrive(connection, side, frame); });
      }
      if (!std::exchange(end.end_held, false)) continue;
      const auto when = scheduler_.now() + delay(*connection);
      scheduler_.at(when, [this, connection = connection, side] { hear_of_end(connection, 1 - side); });
    }
  }
}

bool Network::is_cut(const Connection& connection) const {
  const base::Rank a = connection.ends[0].at->rank;
  const base::Rank b = connection.ends[1].at->rank;
  for (const auto& [id, cut] : cuts_) {
    if (cut.here.contains(a) && cut.there.contains(b)) return true;
    if (cut.here.contains(b) && cut.there.contains(a)) return true;
  }
  return false;
}

void Network::reconsider_silence() {
  for (const auto& [id, connection] : connections_) watch_silence(connection);
}

bool Network::hears(const Connection& connection, int side) const {
  const Endpoint& self = *connection.ends[side].at;
  const Endpoint& peer = *connection.ends[1 - side].at;
  if (scheduler_.frozen(self.process)) return true;  // Time that it sleeps through is no silence.
  return !peer.vanished && !scheduler_.frozen(peer.process) && !is_cut(connection);
}

void Network::watch_silence(const std::shared_ptr<Connection>& connection) {
  for (int side : {0, 1}) {
    Connection::End& end = connection->ends[side];
    if (end.over) continue;
    if (hears(*connection, side)) {
      end.silent_since.reset();
    } else if (!end.silent_since && end.at->lost_after > base::Duration::zero()) {
      const auto since = scheduler_.now();
      end.silent_since = since;
      const auto span = end.at->lost_after;
      const auto when = since + span + scheduler_.random().between(base::Duration::zero(), span / 4);
      scheduler_.at(when, [this, connection, side, since] {
        if (connection->ends[side].silent_since != since) return;
        const auto rank = connection->peer_of(side).value;
        finish(connection, side,
               {base::Code::PeerLost, "[sim] worker of rank " + std::to_string(rank) +
                                          ": silent for longer than "
                                          "lost_after"});
      });
    }
  }
}

}  // namespace farad::net::sim
