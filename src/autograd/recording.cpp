#include "autograd/recording.h"

#include <utility>

namespace farad::autograd {

void Recording::add(compat::Ptr<SendNode> node, uint64_t call) {
  const auto& passage = node->passage();
  sent_.emplace(passage.pair, Sent{node, {passage.peer, {}}, call});
}

void Recording::went(PairId pair, net::Peer to) {
  if (const auto found = sent_.find(pair); found != sent_.end()) found->second.to = to;
}

compat::Ptr<SendNode> Recording::drop(PairId pair) {
  const auto found = sent_.find(pair);
  if (found == sent_.end()) return {};
  auto node = std::move(found->second.node);
  sent_.erase(found);
  return node;
}

PairId Recording::result_of(net::Peer to, uint64_t call) const {
  for (const auto& [pair, sent] : sent_) {
    if (sent.call == call && sent.to.rank == to.rank) return pair;
  }
  return {};
}

void Recording::add(PairId pair, Received received) { received_.emplace(pair, std::move(received)); }

std::vector<compat::Ptr<SendNode>> Recording::on_lost(net::Peer peer) {
  std::vector<compat::Ptr<SendNode>> nodes;
  for (auto it = sent_.begin(); it != sent_.end();) {
    const bool gone = it->second.to == peer;
    if (gone) nodes.push_back(std::move(it->second.node));
    it = gone ? sent_.erase(it) : std::next(it);
  }
  for (auto& [pair, received] : received_) received.lost |= received.from == peer;
  return nodes;
}

std::vector<compat::Ptr<SendNode>> Recording::forget(RerunId rerun) {
  std::vector<compat::Ptr<SendNode>> nodes;
  std::erase_if(sent_, [&](auto& entry) {
    auto& node = entry.second.node;
    if (node->passage().rerun != rerun) return false;
    nodes.push_back(std::move(node));
    return true;
  });
  std::erase_if(received_, [&](const auto& entry) { return entry.second.rerun == rerun; });
  return nodes;
}

}  // namespace farad::autograd
