#include "autograd/peers.h"

#include <algorithm>

namespace farad::autograd {

void Peers::meet(base::Rank rank) { met_.try_emplace(rank); }

bool Peers::meet(net::Peer peer) {
  if (const auto over = over_.find(peer.rank); over != over_.end() && over->second >= peer.incarnation) return false;
  auto& life = met_[peer.rank];
  life = std::max(life, peer.incarnation);
  return true;
}

void Peers::lost(net::Peer peer) {
  auto& over = over_[peer.rank];
  over = std::max(over, peer.incarnation);
  if (const auto found = met_.find(peer.rank); found != met_.end() && found->second <= over) met_.erase(found);
}

std::vector<base::Rank> Peers::met() const {
  std::vector<base::Rank> all;
  for (const auto& [rank, life] : met_) all.push_back(rank);
  return all;
}

}  // namespace farad::autograd
