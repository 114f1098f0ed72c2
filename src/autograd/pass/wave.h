#pragma once

#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "autograd/pass/message.h"
#include "autograd/topology.h"

namespace farad::autograd {

/// One worker's part in one pass: which nodes may run, which have, and which of them a root leads to.
///
/// Every node of the topology fires exactly once, when all that lead to it have. One that a root leads to is *live*:
/// it is handed out by next(), and passes liveness on when ran() is told. One that no root leads to is never handed
/// out; it passes that on at once. Sends and recvs know liveness per tensor.
///
/// Neither hashes nor allocates per node. One thread at a time.
class Wave {
 public:
  Wave() = default;
  explicit Wave(std::shared_ptr<const Topology> topology);

  /// Once, first: the roots are live. The place of the sends is in topology().sends.
  void start(std::span<const Link> roots);

  bool is_waiting(uint32_t send) const { return waiting_[send]; }
  /// Of a send that is waiting: its states, or none if all are null.
  void answer(uint32_t send, std::span<const TensorState> states);

  /// A live node whose turn it is, no_node if there is none: recvs first, so that others can go on, then by priority.
  /// Among equals the one that comes first in the topology.
  NodeIndex next();
  bool has_next() const { return next_recv_ < ready_recvs_.size() || !heap_.empty(); }
  bool recv_is_next() const { return next_recv_ < ready_recvs_.size(); }
  /// Of a node that next() gave: it was run. Anything else is ignored. `live`: whether it has something to pass on; one
  /// that took part only for others may have not.
  void ran(NodeIndex node, bool live = true);

  /// Recvs that have fired and were not taken yet, by their place in topology().recvs.
  std::vector<uint32_t>& fired() { return fired_; }
  /// Its tensors: 1 where live.
  std::span<const uint8_t> tensors_of_recv(uint32_t recv) const;
  bool is_live_recv(uint32_t recv) const { return nodes_[topology_->recvs[recv].node].live; }

  uint32_t left() const { return left_; }        ///< nodes that have not fired
  uint32_t running() const { return running_; }  ///< nodes that were handed out
  const Topology& topology() const { return *topology_; }

  auto fields() const {
    return std::tie(nodes_, tensors_, waiting_, heap_, ready_recvs_, next_recv_, fired_, left_, running_);
  }

 private:
  enum : uint32_t { Untouched, Ready, Out, Fired };

  struct Node {
    uint32_t pending = 0;        // what has not yet fired, or answered, of all that leads here
    uint32_t crossing : 28 = 0;  // of a send or a recv: its place among them
    uint32_t is_recv : 1 = 0;
    uint32_t live : 1 = 0;
    uint32_t phase : 2 = Untouched;
    auto fields() const { return std::tuple(pending, +crossing, +is_recv, +live, +phase); }
  };
  struct Entry {
    uint64_t priority;
    NodeIndex node;
    bool operator<(const Entry& other) const {
      return priority != other.priority ? priority < other.priority : node > other.node;
    }
    auto fields() const { return std::tie(priority, node); }
  };

  void reach(Link link, bool live);
  void make_ready(NodeIndex node);
  void fire_silent();

  std::shared_ptr<const Topology> topology_;
  std::vector<Node> nodes_;
  std::vector<uint8_t> tensors_;        // live or not; of all sends, then of all recvs
  std::vector<uint32_t> send_tensors_;  // by send: where its own begin
  std::vector<uint32_t> recv_tensors_;
  std::vector<uint8_t> waiting_;  // by send
  std::vector<Entry> heap_;
  std::vector<NodeIndex> ready_recvs_;
  size_t next_recv_ = 0;
  std::vector<NodeIndex> silent_;  // ready and not live: a list, because a chain of them may be as long as the graph
  std::vector<uint32_t> fired_;
  uint32_t left_ = 0;
  uint32_t running_ = 0;
};

}  // namespace farad::autograd
