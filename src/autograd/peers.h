#pragma once

#include <map>
#include <utility>
#include <vector>

#include "net/transport.h"

namespace farad::autograd {

/// The peers of one context: to whom or from whom a message of its forward pass went. Used under its context's lock.
///
/// Losing a peer ends what was had with that life of it. A message to the next life may be on its way before the loss
/// is told, and the loss may be told before whoever sent to that life has said so: neither is forgotten or kept
/// wrongly, because lives are compared, never counted.
class Peers {
 public:
  /// A message is about to go there, to whatever life it will be.
  void meet(base::Rank rank);
  /// One went to that life, or came from it. False if that life is over already.
  bool meet(net::Peer peer);
  void lost(net::Peer peer);

  std::vector<base::Rank> met() const;  ///< in order

 private:
  /// Where that one is, or belongs, in met_.
  std::vector<std::pair<base::Rank, base::Incarnation>>::iterator place_of(base::Rank rank);

  std::vector<std::pair<base::Rank, base::Incarnation>> met_;  // in order, the latest life; 0 until it is known
  std::map<base::Rank, base::Incarnation> over_;               // the latest life that is
};

}  // namespace farad::autograd
