#include "net/rendezvous/file.h"

#include <algorithm>
#include <optional>

#include "base/mutex.h"
#include "net/rendezvous/backoff.h"
#include "net/rendezvous/ledger.h"
#include "net/rendezvous/report.h"
#include "net/rendezvous/roster.h"

namespace farad::net {
namespace {

using namespace std::chrono_literals;
using meeting::Note;

constexpr auto longest_look = 50ms;  // Between two looks into the file, for groups of up to 50.
constexpr auto longest_farewell = 1s;

void apply(const Note& note, Roster& roster) {
  switch (note.kind) {
    case Note::Kind::Came:
      return roster.restore(note.member, note.size);
    case Note::Kind::Sealed:
      return roster.seal();
    case Note::Kind::Spoilt:
      return roster.spoil(note.status);
  }
}

class FileRendezvous final : public Rendezvous {
 public:
  FileRendezvous(Place place, base::Runtime& runtime)
      : place_(std::move(place)), runtime_(runtime), parker_(runtime.make_parker()) {}
  ~FileRendezvous() override { close(); }

  base::Status join(const JoinRequest& request, std::vector<Member>& members, bool& rejoined) override {
    {
      base::Lock lock(mutex_);
      if (closed_) return report(place_, request.self, closed_meanwhile());
      joining_ = true;
    }
    ledger_.emplace(place_.where, request.secret);
    auto status = meet(request, members, rejoined);
    {
      base::Lock lock(mutex_);
      joining_ = false;
      if (closed_) status = closed_meanwhile();
    }
    if (!status.ok()) leave();
    return report(place_, request.self, status);
  }

  void close() override {
    {
      base::Lock lock(mutex_);
      if (std::exchange(closed_, true)) return;
      if (joining_) {
        parker_->unpark();
        return;  // Who joins has the ledger, and leaves.
      }
    }
    leave();
  }

 private:
  bool closed() EXCLUDES(mutex_) {
    base::Lock lock(mutex_);
    return closed_;
  }

  base::Status meet(const JoinRequest& request, std::vector<Member>& members, bool& rejoined) {
    const auto grace_until = runtime_.now() + rival_grace;
    // Each look is a request to the server where the file is on one: a large group looks less often.
    Backoff backoff(std::max<base::Duration>(longest_look, request.size * 1ms));
    Roster roster;
    bool arrived = false;
    while (true) {
      const auto now = runtime_.now();
      auto status = arrived ? look(roster) : arrive(request, now < grace_until, roster, rejoined);
      if (status.ok()) arrived = true;
      if (!roster.failure().ok()) return linger(request, roster.failure());
      if (status.ok() && roster.sealed()) {
        members = roster.members();
        return {};
      }
      if (!status.ok() && status.code() != base::Code::Busy) return status;
      if (now >= request.deadline) return give_up(request, arrived, roster, status);
      parker_->park(std::min(request.deadline, now + backoff.next()));
      if (closed()) return closed_meanwhile();
    }
  }

  /// Takes the rank's chair and writes us down. Busy: try again soon.
  base::Status arrive(const JoinRequest& request, bool rival_may_be_dying, Roster& roster, bool& rejoined) {
    if (auto status = ledger_->take_pen(Ledger::Pen::Write); !status.ok()) return status;
    PenHold hold(*ledger_);
    if (auto status = ledger_->clear_if_abandoned(); !status.ok()) return status;
    ledger_->rewind();
    roster = Roster();
    if (auto status = read_on(roster); !status.ok()) return status;
    if (!roster.failure().ok()) return roster.failure();

    const Member& self = request.self;
    bool taken = false;
    if (auto status = ledger_->take_chair(self.rank, taken); !status.ok()) return status;
    const base::Status still_taken(base::Code::Busy, "rank " + std::to_string(self.rank.value) + " is still taken");
    if (!taken && roster.rival(self) && rival_may_be_dying) return still_taken;
    // Only those who could be in our way are asked whether they still live: with all of them, n joins would ask n * n
    // times.
    for (const auto& other : roster.members()) {
      const bool gone =
          other.rank == self.rank ? taken : other.name == self.name && !ledger_->taken_by_other(other.rank);
      if (gone) roster.leave(other.rank, other.birth);
    }
    if (auto status = roster.admit(self, request.size, rejoined); !status.ok()) {
      if (roster.failure().ok()) return status;
      const auto written = ledger_->append({.kind = Note::Kind::Spoilt, .status = status});
      return written.ok() ? status : written;
    }
    if (!taken) return still_taken;  // By one whose note could not be written. It will leave.
    if (auto status = ledger_->append({.kind = Note::Kind::Came, .member = self, .size = request.size}); !status.ok())
      return status;
    return roster.sealed() ? base::Status() : seal_if_all_live(self, roster);
  }

  /// The last one to come finds all others alive and says so in the file; from then on the group is complete for all.
  base::Status seal_if_all_live(const Member& self, Roster& roster) {
    if (!roster.full()) return {};
    forget_the_dead(self, roster);
    if (!roster.full()) return {};
    roster.seal();
    return ledger_->append({.kind = Note::Kind::Sealed});
  }

  void forget_the_dead(const Member& self, Roster& roster) {
    for (const auto& other : roster.members())
      if (other.rank != self.rank && !ledger_->taken_by_other(other.rank)) roster.leave(other.rank, other.birth);
  }

  base::Status look(Roster& roster) {
    if (auto status = ledger_->take_pen(Ledger::Pen::Read); !status.ok()) return status;
    PenHold hold(*ledger_);
    return read_on(roster);
  }

  base::Status read_on(Roster& roster) {
    std::vector<Note> notes;
    if (auto status = ledger_->read(notes); !status.ok()) return status;
    for (const auto& note : notes) apply(note, roster);
    return {};
  }

  base::Status give_up(const JoinRequest& request, bool arrived, Roster& roster, const base::Status& last) {
    if (!arrived) return {base::Code::Timeout, last.message() + "; is it stopped?"};
    forget_the_dead(request.self, roster);  // As of the last look, if the pen was taken just now.
    auto status = timed_out(roster.missing());
    return last.ok() ? status : base::Status(status.code(), status.message() + " At the end, " + last.message());
  }

  /// Keeps the chair, and with it the note of what went wrong, so that those who come late hear of it too.
  base::Status linger(const JoinRequest& request, base::Status failure) {
    const auto until = std::min(request.deadline, runtime_.now() + linger_after_failure);
    while (!closed() && runtime_.now() < until) parker_->park(until);
    return failure;
  }

  void leave() {
    if (!ledger_) return;
    if (ledger_->seated()) rise();  // Who never sat has no say in whether the file is needed.
    ledger_.reset();
  }

  void rise() {
    // Without the pen the file may stay behind, if somebody is stopped with the pen in hand. The next job clears it.
    const auto until = runtime_.now() + longest_farewell;
    Backoff backoff(longest_look);
    auto status = ledger_->take_pen(Ledger::Pen::Write);
    while (status.code() == base::Code::Busy && runtime_.now() < until) {
      parker_->park(runtime_.now() + backoff.next());
      status = ledger_->take_pen(Ledger::Pen::Write);
    }
    if (status.ok()) ledger_->leave();
  }

  // Constant after construction.
  const Place place_;
  base::Runtime& runtime_;
  const std::unique_ptr<base::Parker> parker_;

  // Of the thread in join(), later of the one in close().
  std::optional<Ledger> ledger_;

  base::Mutex mutex_;
  bool joining_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<Rendezvous> make_file_rendezvous(Place place, base::Runtime& runtime) {
  return std::make_unique<FileRendezvous>(std::move(place), runtime);
}

}  // namespace farad::net
