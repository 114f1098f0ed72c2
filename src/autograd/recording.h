#pragma once

#include <utility>
#include <vector>

#include "autograd/crossing_nodes.h"
#include "autograd/ids.h"
#include "net/transport.h"

namespace farad::autograd {

/// What one worker has sent and received in one context. Used under its context's lock.
class Recording {
 public:
  struct Sent {
    compat::Ptr<SendNode> node;
    net::Peer to;       ///< incarnation 0 until that is known
    uint64_t call = 0;  ///< of a result: the call that it answers
  };
  struct Received {
    net::Peer from;
    uint32_t tensors = 0;
    CallName call;
    RerunId rerun;
    bool lost = false;    ///< its sender is gone, and with it whatever its gradient was for
    PassId of_pass = {};  ///< of a gradient: the pass that brought it, which can have no gradient for it
    uint64_t path = 0;    ///< how it came to be; see current.h
  };

  void add(compat::Ptr<SendNode> node, uint64_t call = 0);
  void went(PairId pair, net::Peer to);
  /// It never got there.
  compat::Ptr<SendNode> drop(PairId pair);
  /// The result that answers that call, if it is there.
  PairId result_of(net::Peer to, uint64_t call) const;
  void add(PairId pair, Received received);

  /// What went to a lost peer is not waited for: every path that leads on from there and that a root reaches enters
  /// the lost worker by something a survivor received from it, and there the pass fails. Gives the nodes back, to be
  /// let go of where no lock is held.
  std::vector<compat::Ptr<SendNode>> on_lost(net::Peer peer);

  /// That one's pass is over. Gives the nodes back, as above.
  std::vector<compat::Ptr<SendNode>> forget(RerunId rerun);

  /// In the order in which they were added. Of what was received, a peer that does wrong may say the same pair twice.
  const std::vector<std::pair<PairId, Sent>>& sent() const { return sent_; }
  const std::vector<std::pair<PairId, Received>>& received() const { return received_; }
  /// Null if it is not there.
  const Sent* find_sent(PairId pair) const;
  const Received* find_received(PairId pair) const;

 private:
  // Lists, because nearly all that is looked for is near the end: it has just been added.
  std::vector<std::pair<PairId, Sent>> sent_;
  std::vector<std::pair<PairId, Received>> received_;
};

}  // namespace farad::autograd
