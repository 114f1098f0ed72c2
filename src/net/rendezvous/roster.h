#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "net/member.h"

namespace farad::net {

/// The rules of a meeting, the same wherever it is held: who has come, who is wrong, who is missing. Does no I/O and
/// knows no time; whoever holds the meeting says who came and who left. Messages are clauses without a prefix.
/// Not for several threads at once.
class Roster {
 public:
  /// Somebody present with the newcomer's rank and name but of another birth; null if there is nobody. Either the
  /// newcomer is that worker, restarted before its end was noticed, or two were started with one rank.
  const Member* rival(const Member& newcomer) const;

  /// Seats the newcomer, or says why not. Before the group is sealed a newcomer that is refused spoils the meeting for
  /// all: failure() from then on. After, it is refused alone. `rejoined`: it took the place of a former self.
  base::Status admit(const Member& newcomer, int size, bool& rejoined);
  /// Seats without judging: somebody else did.
  void restore(const Member& member, int size);
  void spoil(base::Status failure) { failure_ = std::move(failure); }

  /// Present no more, so that another may take the seat. Nothing if the seat is another life's by now.
  void leave(base::Rank rank, uint64_t birth);

  /// All are present at this moment.
  bool full() const { return size_ > 0 && present_ == static_cast<size_t>(size_); }
  /// The group is complete and stays so, whoever leaves.
  void seal() { sealed_ = true; }
  bool sealed() const { return sealed_; }
  const base::Status& failure() const { return failure_; }

  /// After a failure: this one has heard of it. True once all ranks of the group have.
  void told(base::Rank rank) { told_.insert(rank); }
  bool all_told() const { return told_.size() >= static_cast<size_t>(size_); }

  int size() const { return size_; }
  /// Those who came, by rank; some may have left.
  std::vector<Member> members() const;
  /// `rank 2 ("worker2", which came and left), rank 5`
  std::string missing() const;

 private:
  struct Seat {
    Member member;
    bool present = false;
  };

  base::Status judge(const Member& newcomer, int size) const;
  void sit(const Member& member);

  int size_ = 0;  // 0 until the first has come.
  Member sized_by_;
  std::map<base::Rank, Seat> seats_;
  size_t present_ = 0;
  std::set<base::Rank> told_;
  bool sealed_ = false;
  base::Status failure_;
};

/// `"worker3" (rank 3)`, for messages.
std::string describe(const Member& member);

}  // namespace farad::net
