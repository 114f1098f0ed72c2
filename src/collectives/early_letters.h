#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/letter.h"
#include "net/transport.h"

namespace farad::collectives {

/// What has come for groups that this worker has not made yet. Of each sender so many bytes are kept, or one letter if
/// that is larger: who sends more has run far ahead of this worker, or is in groups that will never be made here.
///
/// One thread at a time.
class EarlyLetters {
 public:
  using Letters = std::vector<std::pair<net::Peer, Letter>>;

  EarlyLetters(base::Rank self, size_t most_bytes) : self_(self), most_bytes_(most_bytes) {}

  enum class Fate {
    Kept,
    Foreign,  ///< by its own list, its sender or this worker is no member
    TooMuch,
  };
  /// Takes the letter only if it is kept.
  Fate keep(net::Peer from, Letter& letter);
  /// Those of one group, in the order in which they came.
  Letters take(const GroupId& group);
  void clear();
  /// What that worker's next life sends is kept again.
  void forgive(base::Rank rank) { overrun_.erase(rank); }

  /// Whether letters of that worker were too much: some are missing then.
  bool has_overrun(base::Rank rank) const { return overrun_.contains(rank); }
  /// To which operation that worker has come; empty if to none.
  std::string heard_of(base::Rank rank) const;

 private:
  const base::Rank self_;
  const size_t most_bytes_;
  std::map<GroupId, Letters> letters_;
  std::map<net::Peer, size_t> bytes_;  // by sender, each life of it by itself, of what is kept
  std::set<base::Rank> overrun_;
};

}  // namespace farad::collectives
