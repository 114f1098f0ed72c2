#include "net/rendezvous/local.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "net/rendezvous/report.h"
#include "net/rendezvous/roster.h"

namespace farad::net {
namespace {

using Parkers = std::vector<std::shared_ptr<base::Parker>>;

/// Wakes are sent without the lock: in a simulated runtime they are foreign code.
void wake(const Parkers& parkers) {
  for (const auto& parker : parkers) parker->unpark();
}

struct Meeting {
  Roster roster;
  Secret secret;      // The first one's; the others must have the same.
  int attending = 0;  // Handles that use this meeting. The last one to go ends it.
  std::map<uint64_t, std::shared_ptr<base::Parker>> waiting;  // By order of coming, so that waking them has an order.
  uint64_t next_ticket = 0;

  Parkers all_waiting() const {
    Parkers parkers;
    for (const auto& [ticket, parker] : waiting) parkers.push_back(parker);
    return parkers;
  }
};

/// All meetings of the process. Workers of one process find each other by nothing but the name they were given, so
/// this has to be one of the few things that are global.
struct Meetings {
  // Workers of two runtimes cannot wake each other, so they do not meet.
  using Key = std::pair<base::Runtime*, std::string>;

  base::Mutex mutex;
  std::map<Key, Meeting> by_name GUARDED_BY(mutex);

  static Meetings& of_this_process() {
    static Meetings meetings;
    return meetings;
  }
};

class LocalRendezvous final : public Rendezvous {
 public:
  LocalRendezvous(Place place, base::Runtime& runtime)
      : place_(std::move(place)),
        runtime_(runtime),
        key_(&runtime, place_.where),
        parker_(runtime.make_parker()),
        meetings_(Meetings::of_this_process()) {}
  ~LocalRendezvous() override { close(); }

  base::Status join(const JoinRequest& request, std::vector<Member>& members, bool& rejoined) override {
    auto status = meet(request, members, rejoined);
    if (!status.ok()) leave();  // Somebody else may take the rank now.
    return report(place_, request.self, status);
  }

  void close() override {
    {
      base::Lock lock(meetings_.mutex);
      closed_ = true;
    }
    parker_->unpark();
    leave();
  }

 private:
  base::Status meet(const JoinRequest& request, std::vector<Member>& members, bool& rejoined)
      EXCLUDES(meetings_.mutex) {
    if (auto status = arrive(request, rejoined); !status.ok()) return linger(request, status);
    base::Status failure;
    while (failure.ok()) {
      {
        base::Lock lock(meetings_.mutex);
        if (closed_) return closed_meanwhile();
        Meeting& meeting = meetings_.by_name.at(key_);
        if (meeting.roster.sealed()) {
          members = meeting.roster.members();
          meeting.waiting.erase(ticket_);
          return {};
        }
        failure = meeting.roster.failure();
        if (failure.ok() && runtime_.now() >= request.deadline) return timed_out(meeting.roster.missing());
      }
      if (failure.ok()) parker_->park(request.deadline);
    }
    return linger(request, failure);
  }

  base::Status arrive(const JoinRequest& request, bool& rejoined) EXCLUDES(meetings_.mutex) {
    base::Status status;
    Parkers parkers;
    {
      base::Lock lock(meetings_.mutex);
      if (closed_) return closed_meanwhile();
      auto [found, first] = meetings_.by_name.try_emplace(key_);
      Meeting& meeting = found->second;
      if (first) meeting.secret = request.secret;
      ++meeting.attending;
      self_ = request.self;
      attending_ = true;
      ticket_ = meeting.next_ticket++;
      meeting.waiting.emplace(ticket_, parker_);

      if (meeting.secret.bytes() != request.secret.bytes()) return wrong_secret();
      status = meeting.roster.admit(request.self, request.size, rejoined);
      if (meeting.roster.full()) meeting.roster.seal();
      if (meeting.roster.sealed() || !status.ok()) parkers = meeting.all_waiting();
    }
    wake(parkers);
    return status;
  }

  /// A meeting that failed is held open for a moment, so that those who come late hear why too.
  base::Status linger(const JoinRequest& request, base::Status failure) EXCLUDES(meetings_.mutex) {
    const auto until = std::min(request.deadline, runtime_.now() + linger_after_failure);
    Parkers parkers;
    {
      base::Lock lock(meetings_.mutex);
      if (closed_) return failure;
      Roster& roster = meetings_.by_name.at(key_).roster;
      if (roster.failure().ok()) return failure;  // Refused alone.
      roster.told(self_.rank);
      if (roster.all_told()) parkers = meetings_.by_name.at(key_).all_waiting();
    }
    wake(parkers);
    while (runtime_.now() < until) {
      {
        base::Lock lock(meetings_.mutex);
        if (closed_ || meetings_.by_name.at(key_).roster.all_told()) break;
      }
      parker_->park(until);
    }
    return failure;
  }

  void leave() EXCLUDES(meetings_.mutex) {
    base::Lock lock(meetings_.mutex);
    if (!attending_) return;
    attending_ = false;
    const auto found = meetings_.by_name.find(key_);
    Meeting& meeting = found->second;
    meeting.waiting.erase(ticket_);
    meeting.roster.leave(self_.rank, self_.birth);
    if (--meeting.attending == 0) meetings_.by_name.erase(found);
  }

  // Constant after construction.
  const Place place_;
  base::Runtime& runtime_;
  const Meetings::Key key_;
  const std::shared_ptr<base::Parker> parker_;
  Meetings& meetings_;

  bool closed_ GUARDED_BY(meetings_.mutex) = false;
  bool attending_ GUARDED_BY(meetings_.mutex) = false;
  Member self_ GUARDED_BY(meetings_.mutex);
  uint64_t ticket_ GUARDED_BY(meetings_.mutex) = 0;
};

}  // namespace

std::unique_ptr<Rendezvous> make_local_rendezvous(Place place, base::Runtime& runtime) {
  return std::make_unique<LocalRendezvous>(std::move(place), runtime);
}

}  // namespace farad::net
