// What a worker knows of the graph, and how two Worlds are told apart.

#include <algorithm>

#include "explore/hash.h"
#include "explore/world.h"

namespace farad::autograd::explore {

Snapshot World::snapshot(int worker, PassId pass) {
  auto& self = at(worker);
  auto topology = std::make_shared<Topology>();
  auto& ids = self.nodes[pass];
  ids.clear();
  std::map<NodeId, NodeIndex> index;
  const auto add = [&](NodeId id) {
    const auto [at, fresh] = index.try_emplace(id, static_cast<NodeIndex>(ids.size()));
    if (fresh) ids.push_back(id);
    return at->second;
  };
  Snapshot snapshot;
  const auto& known = record(pass);
  if (pass.root == rank(worker)) {
    const auto& root = graph_->roots[static_cast<size_t>(&known - records_.data())];
    for (const auto& [id, input] : root.inputs) snapshot.roots.push_back({add(id), input});
  }
  const auto pass_number = static_cast<int>(&known - records_.data());
  const auto knows = [&](const Graph::Pair& pair) {
    const bool nested = graph_->roots[static_cast<size_t>(pass_number)].outer >= 0;
    return pair.only_for == (nested ? pass_number : -1);
  };
  for (const int pair : self.sends) {
    const auto& made = graph_->pairs[static_cast<size_t>(pair)];
    if (!knows(made)) continue;
    topology->sends.push_back({add(made.send), graph_->id_of(pair), rank(made.receiver), made.tensors, made.gradient});
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    topology->first_link.push_back(static_cast<uint32_t>(topology->links.size()));
    const auto& node = graph_->nodes[ids[i]];
    topology->roles.push_back(node.role);
    topology->priority.push_back(ids[i]);
    for (const auto& [id, input] : node.next) topology->links.push_back({add(id), input});
  }
  topology->first_link.push_back(static_cast<uint32_t>(topology->links.size()));
  for (const int pair : self.recvs) {
    const auto& made = graph_->pairs[static_cast<size_t>(pair)];
    if (!knows(made) || brought(pair, pass)) continue;
    const auto found = index.find(made.recv);
    const Crossing crossing{found == index.end() ? no_node : found->second, graph_->id_of(pair), rank(made.sender),
                            made.tensors, made.gradient};
    (found == index.end() ? topology->unreached : topology->recvs).push_back(crossing);
  }
  snapshot.topology = std::move(topology);
  for (const int peer : self.peers) snapshot.peers.push_back(rank(peer));
  for (const int peer : self.lost) {
    if (!self.peers.contains(peer)) snapshot.lost.push_back(rank(peer));
  }
  return snapshot;
}

std::pair<uint64_t, uint64_t> World::hash() const {
  Hash all;
  for (const auto& worker : workers_) {
    add(all, worker.alive);
    if (!worker.alive) continue;
    add(all, worker.passes);
    add(all, worker.sends);
    add(all, worker.recvs);
    add(all, worker.peers);
    add(all, worker.lost);
    add(all, worker.nodes);
    add(all, worker.scans.size());
    for (const auto& scan : worker.scans) add(all, scan.pass);
  }
  std::vector<std::pair<uint64_t, uint64_t>> envelopes;
  for (const auto& envelope : network_) {
    Hash one;
    add(one, std::tie(envelope.kind, envelope.from, envelope.to, envelope.epoch, envelope.pair, envelope.message));
    if (envelope.message.cargo) add(one, *static_cast<const std::vector<int64_t>*>(envelope.message.cargo.get()));
    envelopes.push_back(one.value());
  }
  std::sort(envelopes.begin(), envelopes.end());
  add(all, envelopes);
  for (const auto& record : records_) {
    add(all, std::tie(record.begun, record.id, record.cancelled, record.executed, record.values, record.began,
                      record.waiting));
    for (const auto& [worker, ending] : record.endings) add(all, std::tie(worker, ending.committed));
  }
  add(all, std::tie(made_, given_up_, dead_calls_, epochs_, connected_, refused_, had_loss_));
  add(all, std::tuple(dangers_.kills, dangers_.cuts, dangers_.refusals, dangers_.cancels, dangers_.lost_calls));
  return all.value();
}

}  // namespace farad::autograd::explore
