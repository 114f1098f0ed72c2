#include "autograd/recording.h"

#include <algorithm>

namespace farad::autograd {
namespace {

/// The last of that pair; the end if there is none.
template <class Entries>
auto find_last(Entries& entries, PairId pair) {
  const auto found = std::find_if(entries.rbegin(), entries.rend(), [&](auto& entry) { return entry.first == pair; });
  return found == entries.rend() ? entries.end() : std::prev(found.base());
}

}  // namespace

void Recording::add(compat::Ptr<SendNode> node, uint64_t call) {
  const auto& passage = node->passage();
  const auto pair = passage.pair;
  const net::Peer to{passage.peer, {}};
  sent_.emplace_back(pair, Sent{std::move(node), to, call});
}

void Recording::went(PairId pair, net::Peer to) {
  if (const auto found = find_last(sent_, pair); found != sent_.end()) found->second.to = to;
}

compat::Ptr<SendNode> Recording::drop(PairId pair) {
  const auto found = find_last(sent_, pair);
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

void Recording::add(PairId pair, Received received) { received_.emplace_back(pair, std::move(received)); }

const Recording::Sent* Recording::find_sent(PairId pair) const {
  const auto found = find_last(sent_, pair);
  return found == sent_.end() ? nullptr : &found->second;
}

const Recording::Received* Recording::find_received(PairId pair) const {
  const auto found = find_last(received_, pair);
  return found == received_.end() ? nullptr : &found->second;
}

std::vector<compat::Ptr<SendNode>> Recording::on_lost(net::Peer peer) {
  std::vector<compat::Ptr<SendNode>> nodes;
  std::erase_if(sent_, [&](auto& entry) {
    if (entry.second.to != peer) return false;
    nodes.push_back(std::move(entry.second.node));
    return true;
  });
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
