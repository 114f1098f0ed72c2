#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/transport.h"

namespace farad::autograd {

/// How many messages of one context went to and came from each peer, until after its release none can come any more.
/// Used under its context's lock.
///
/// A release follows every edge: each worker tells all whom it met in the context, with the number of messages it sent
/// them. Until that many have come, the context's id is kept, so that a late message does not bring it back to life.
/// With a lost peer both ends begin anew. A count that is too small then is of no harm, one that is too large would be.
class Traffic {
 public:
  /// A message goes to `to`; before it does. `meets`: of the forward pass, which makes it a peer of the context.
  void sent(base::Rank to, bool meets);
  /// It did not after all.
  void unsent(base::Rank to);
  void received(net::Peer from, bool meets);
  /// That worker wants to hear of the release, too.
  void watched_by(net::Peer peer) { life_of(peer); }
  /// Whether anything had come from that life of it.
  bool lost(net::Peer peer);
  /// Whether it may have forgotten, with a loss that came later there than here, that it sent us anything.
  bool may_have_forgotten(base::Rank peer) const;

  /// After the release: that peer has sent so many in all.
  void expect(net::Peer from, uint64_t messages) { life_of(from).expected = messages; }
  /// Whether all have come.
  bool settled() const;

  /// Who has not been told of the release yet, and how many messages each was sent. To be told now, or never: each is
  /// given once.
  std::vector<std::pair<base::Rank, uint64_t>> take_untold();
  /// After the release: from whom not all has come, and what is known of it, for people.
  std::vector<std::string> awaited(const std::function<std::string(base::Rank)>& name_of) const;
  std::vector<base::Rank> met() const;  ///< the peers of the context

 private:
  struct Counts {
    base::Incarnation life{};  // that messages came from
    bool met = false;
    bool told = false;  // of the release
    uint64_t sent = 0;
    uint64_t received = 0;
    std::optional<uint64_t> expected;
  };
  static bool is_settled(const Counts& counts) { return counts.expected && counts.received >= *counts.expected; }
  /// What is counted of that life; of an earlier one nothing is needed any more.
  Counts& life_of(net::Peer peer);

  std::map<base::Rank, Counts> peers_;
  std::set<base::Rank> lost_;  // at some time
};

}  // namespace farad::autograd
