#include "autograd/traffic.h"

#include <algorithm>
#include <utility>

namespace farad::autograd {

void Traffic::sent(base::Rank to, bool meets) {
  auto& counts = peers_[to];
  ++counts.sent;
  counts.met |= meets;
}

void Traffic::unsent(base::Rank to) {
  const auto found = peers_.find(to);
  if (found != peers_.end() && found->second.sent > 0) --found->second.sent;
}

void Traffic::received(net::Peer from, bool meets) {
  auto& counts = life_of(from);
  ++counts.received;
  counts.met |= meets;
}

Traffic::Counts& Traffic::life_of(net::Peer peer) {
  auto& counts = peers_[peer.rank];
  if (counts.life.value == 0) counts.life = peer.incarnation;  // What was sent so far is taken to have gone there.
  if (counts.life < peer.incarnation) counts = {peer.incarnation, counts.met, false, 0, 0, {}};
  return counts;
}

bool Traffic::lost(net::Peer peer) {
  lost_.insert(peer.rank);
  const auto found = peers_.find(peer.rank);
  if (found == peers_.end() || found->second.life > peer.incarnation) return false;
  const bool was_heard = found->second.life == peer.incarnation && found->second.received > 0;
  peers_.erase(found);
  return was_heard;
}

bool Traffic::may_have_forgotten(base::Rank peer) const {
  const auto found = peers_.find(peer);
  return lost_.contains(peer) && found != peers_.end() && !found->second.expected;
}

bool Traffic::settled() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const auto& peer) { return is_settled(peer.second); });
}

std::vector<std::pair<base::Rank, uint64_t>> Traffic::take_untold() {
  std::vector<std::pair<base::Rank, uint64_t>> untold;
  for (auto& [rank, counts] : peers_) {
    if (!std::exchange(counts.told, true)) untold.emplace_back(rank, counts.sent);
  }
  return untold;
}

std::vector<std::string> Traffic::awaited(const std::function<std::string(base::Rank)>& name_of) const {
  std::vector<std::string> all;
  for (const auto& [rank, counts] : peers_) {
    if (is_settled(counts)) continue;
    all.push_back(name_of(rank) + " (" + std::to_string(counts.received) + " of " +
                  (counts.expected ? std::to_string(*counts.expected) : "unknown") + ")");
  }
  return all;
}

std::vector<base::Rank> Traffic::met() const {
  std::vector<base::Rank> all;
  for (const auto& [rank, counts] : peers_) {
    if (counts.met) all.push_back(rank);
  }
  return all;
}

}  // namespace farad::autograd
