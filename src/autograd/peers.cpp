#include "autograd/peers.h"

#include <algorithm>

namespace farad::autograd {

std::vector<std::pair<base::Rank, base::Incarnation>>::iterator Peers::place_of(base::Rank rank) {
  return std::lower_bound(met_.begin(), met_.end(), rank, [](const auto& entry, auto r) { return entry.first < r; });
}

void Peers::meet(base::Rank rank) {
  const auto place = place_of(rank);
  if (place == met_.end() || place->first != rank) met_.insert(place, {rank, {}});
}

bool Peers::meet(net::Peer peer) {
  if (const auto over = over_.find(peer.rank); over != over_.end() && over->second >= peer.incarnation) return false;
  const auto place = place_of(peer.rank);
  if (place == met_.end() || place->first != peer.rank) {
    met_.insert(place, {peer.rank, peer.incarnation});
  } else {
    place->second = std::max(place->second, peer.incarnation);
  }
  return true;
}

void Peers::lost(net::Peer peer) {
  auto& over = over_[peer.rank];
  over = std::max(over, peer.incarnation);
  const auto place = place_of(peer.rank);
  if (place != met_.end() && place->first == peer.rank && place->second <= over) met_.erase(place);
}

std::vector<base::Rank> Peers::met() const {
  std::vector<base::Rank> all;
  all.reserve(met_.size());
  for (const auto& [rank, life] : met_) all.push_back(rank);
  return all;
}

}  // namespace farad::autograd
