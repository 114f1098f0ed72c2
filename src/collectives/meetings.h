#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/letter.h"

namespace farad::collectives {

/// What Meetings wants done, by whoever called it.
struct Effects {
  /// A meeting is over here: everybody's contribution, by member, or why not. Those that take no part any more have
  /// contributed nothing.
  struct Done {
    Path path;
    base::Status status;
    std::map<int, Contribution> came;
  };
  /// The others of a meeting have to hear that it failed here.
  struct Tell {
    Path path;
    std::vector<int> members;
    base::Status why;
  };
  std::vector<Done> done;
  std::vector<Tell> tell;
};

/// How one member of a group meets the others: the protocol, with neither threads nor sockets. Messages may come in any
/// order, and before anybody here waits for them; what comes too late for everybody is not kept.
///
/// A meeting fails once two members are seen to have called different things, a member is lost, the one that waits
/// gives up, or another member says that it failed there. Every member that waits hears of it, and of the same cause.
///
/// One thread at a time.
class Meetings {
 public:
  /// `barrier(), number 7`, as messages say it.
  static std::string text_of(const Signature& signature, const Path& path);

  /// Of member `self`. `name_of` a member, and the group's own name, are for messages.
  Meetings(int self, std::function<std::string(int)> name_of, std::string group);

  /// The path of the next operation in that channel. What the others send for its exchanges is kept until end().
  Path begin(uint64_t channel);
  /// The same for what others send for backwards of an exchange; before that is open, so that they cannot be too early.
  void begin(const Path& exchange);
  void end(const Path& path);

  /// What all do together is numbered in sections. Nothing more will begin here in the current one: the next operation
  /// is the first of the next section. Those that this leaves out are what the others have to hear of. Operations of
  /// it that go on here fail as soon as they would have to wait for somebody.
  struct Gap {
    uint64_t first = 0;  ///< of the numbers left out
    uint64_t next = 0;   ///< after them
  };
  Gap skip_section(const base::Status& why, Effects& out);
  /// Member `from` has left those out. Who waits for it there, or will, fails.
  void skipped(int from, Gap gap, const base::Status& why, Effects& out);

  /// A member waits here for what `from` contribute. The others that are concerned, and hear if it fails, are `others`.
  void open(const Path& path, const std::vector<int>& from, std::vector<int> others, Signature own, Effects& out);
  /// Before open(): what comes under that other name is for it too, until it is over.
  void name(const Path& path, const Path& other);
  void came(const Path& path, int from, Contribution contribution, Effects& out);
  void failed(const Path& path, int from, const base::Status& why, Effects& out);
  void ended(const Path& exchange, int from, uint64_t since, Effects& out);
  void lost(int member, const base::Status& why, Effects& out);
  /// What was to go to that member could not be sent; who waits here does so no longer.
  void not_sent(const Path& path, int to, const base::Status& why, Effects& out);
  /// Who waits here does so no longer, because it took longer than `span`: the Timeout names who did not come, and
  /// where it is instead, in this group or, as `elsewhere` says by member, in another one.
  void expire(const Path& path, const std::string& span, const std::map<int, std::string>& elsewhere, Effects& out);
  /// Who waits here does so no longer, and nobody need know.
  void abandon(const Path& path);
  /// All that wait, and all that will.
  void close(const base::Status& why, Effects& out);

  /// `rank 1 (worker1) did not come (rank 1 (worker1) came to ...)`, of those that are waited for there; empty if none.
  std::string who_is_missing(const Path& path, const std::string& when,
                             const std::map<int, std::string>& elsewhere) const;
  /// What that member has come to and nobody here waits in; empty if nothing.
  std::string heard_of(int member) const;
  size_t kept() const { return boxes_.size(); }  ///< meetings that somebody came to, or waits in, and are not over

 private:
  /// What has come for one path, and who waits for it.
  struct Box {
    bool open = false;
    bool awaits = false;  // somebody: else it only gives
    std::set<int> missing;
    std::vector<int> others;
    Signature own;
    std::map<int, Contribution> came;
    std::map<int, uint64_t> ended;  // exchanges: from which backward on
    base::Status failure;
  };
  using Boxes = std::map<Path, Box>;

  bool may_come(const Path& path) const;
  const Path& meant_by(const Path& path) const;
  Box* keep(const Path& path);
  void check(Boxes::iterator at, Effects& out);
  void check_open(uint64_t first, uint64_t next, Effects& out);
  bool is_of_left_section(const Path& path) const;
  static bool needs(const Path& path, const Box& box, int member);
  void finish(Boxes::iterator at, base::Status status, bool tell, Effects& out);
  std::string what(const Path& path, const Signature& own) const;
  std::string mismatch(const Path& path, const Box& box) const;

  const int self_;
  const std::function<std::string(int)> name_of_;
  const std::string group_;
  std::map<uint64_t, uint64_t> next_;         // by channel
  std::map<Path, std::set<uint64_t>> alive_;  // operations and exchanges that go on; which of their steps are over
  struct Skipped {
    int member;
    Gap gap;
    base::Status why;
  };
  std::vector<Skipped> skipped_;  // by others, and not left behind here yet
  base::Status left_;             // why the last section was left here
  std::map<int, base::Status> lost_;
  base::Status closed_;
  Boxes boxes_;
  std::map<Path, Path> names_;  // other ones, of meetings that are open
};

}  // namespace farad::collectives
