#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "autograd/pass/passes.h"

// One worker's Passes, with everybody else played by the test.

namespace farad::autograd::test {

inline base::Rank rank(int n) { return base::Rank(static_cast<uint16_t>(n)); }
inline PairId pair(uint64_t n) { return PairId(n); }

/// A topology, node by node. Links are given by node; to input 0 unless said otherwise.
class Shape {
 public:
  NodeIndex node(Role role, std::vector<Link> links = {}, uint64_t priority = 0) {
    topology_->roles.push_back(role);
    topology_->priority.push_back(priority);
    topology_->first_link.back() = static_cast<uint32_t>(topology_->links.size());
    topology_->links.insert(topology_->links.end(), links.begin(), links.end());
    topology_->first_link.push_back(static_cast<uint32_t>(topology_->links.size()));
    return topology_->size() - 1;
  }
  NodeIndex send(uint64_t id, int to, std::vector<Link> links, bool gradient = false) {
    const auto tensors = static_cast<uint32_t>(links.size());
    const auto index = node(Role::Send, std::move(links));
    topology_->sends.push_back({index, pair(id), rank(to), tensors, gradient});
    return index;
  }
  NodeIndex recv(uint64_t id, int from, uint32_t tensors = 1) {
    const auto index = node(Role::Recv);
    topology_->recvs.push_back({index, pair(id), rank(from), tensors});
    return index;
  }
  void unreached(uint64_t id, int from, bool gradient = false) {
    topology_->unreached.push_back({no_node, pair(id), rank(from), 1, gradient});
  }

  std::shared_ptr<const Topology> topology() const { return topology_; }
  Snapshot snapshot(std::vector<Link> roots = {}, std::initializer_list<int> peers = {},
                    std::initializer_list<int> lost = {}) const {
    Snapshot snapshot{topology_, std::move(roots), {}, {}};
    for (const int peer : peers) snapshot.peers.push_back(rank(peer));
    for (const int peer : lost) snapshot.lost.push_back(rank(peer));
    return snapshot;
  }

 private:
  static std::shared_ptr<Topology> empty() {
    auto topology = std::make_shared<Topology>();
    topology->first_link.push_back(0);
    return topology;
  }
  std::shared_ptr<Topology> topology_ = empty();
};

class Desk : public Surroundings {
 public:
  explicit Desk(int self, int members = 4) : passes(ContextId(7), rank(self), *this), members_(members) {}

  std::vector<base::Rank> members() const override {
    std::vector<base::Rank> all;
    for (int i = 0; i < members_; ++i) all.push_back(rank(i));
    return all;
  }
  std::string describe(PairId id) const override { return "call " + std::to_string(id.value); }

  PassMessage message(PassKind kind, PassId pass) const {
    PassMessage message;
    message.kind = kind;
    message.context = ContextId(7);
    message.pass = pass;
    message.opens = kind == PassKind::Start;
    return message;
  }
  PassMessage grads(PassId pass, uint64_t id, std::vector<TensorState> states) const {
    auto grads = message(PassKind::Grads, pass);
    grads.answers.push_back({pair(id), no_node, static_cast<uint32_t>(states.size())});
    grads.states = std::move(states);
    return grads;
  }
  void hear(int from, PassMessage message) { passes.on_message(rank(from), std::move(message), out); }
  void hear(int from, PassKind kind, PassId pass) { hear(from, message(kind, pass)); }
  /// Begins one that worker `root` is the root of.
  void start(PassId pass, int from, const Snapshot& snapshot) {
    hear(from, PassKind::Start, pass);
    passes.scanned(pass, snapshot, out);
  }
  /// Runs what is ready, and says what it was.
  std::vector<NodeIndex> run(PassId pass) {
    std::vector<NodeIndex> ran;
    for (NodeIndex node; (node = passes.next_ready(pass)) != no_node;) {
      ran.push_back(node);
      passes.ran(pass, node, out);
    }
    return ran;
  }
  /// What was sent of that kind: to whom, in order.
  std::vector<int> sent(PassKind kind) const {
    std::vector<int> to;
    for (const auto& outgoing : out.messages) {
      if (outgoing.message.kind == kind) to.push_back(outgoing.to.value);
    }
    return to;
  }
  const PassMessage* first(PassKind kind) const {
    const auto is_kind = [&](const Effects::Outgoing& outgoing) { return outgoing.message.kind == kind; };
    const auto at = std::find_if(out.messages.begin(), out.messages.end(), is_kind);
    return at == out.messages.end() ? nullptr : &at->message;
  }
  void forget() { out = {}; }

  Passes passes;
  Effects out;

 private:
  int members_;
};

}  // namespace farad::autograd::test
