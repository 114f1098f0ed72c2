#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"
#include "wire/message.h"

namespace farad::rpc {

/// How many calls a worker sent to and took in from each rank.
struct Traffic {
  std::vector<uint64_t> sent;
  std::vector<uint64_t> received;
};

/// What a worker knows of itself at one instant.
struct Activity {
  Traffic traffic;
  bool idle = false;  ///< no call of its own waits, none runs here
  uint64_t look = 0;  ///< counts up: of two of them, the later one holds
};

/// How a group agrees that it is done.
///
/// The lowest rank that is there decides. Each member that has called close() reports to it whenever it is idle: no
/// call of its own waits, none runs here; again and again only once the decider wants to close too and has asked, so
/// that a server which closes at once and then serves sends nothing for it. If all members have reported, and each has
/// taken in exactly as many calls from each other as that one has sent, then nothing is in flight and nothing can come
/// any more: a member could only become active again by a call taken in after its report; the first such call was sent
/// either before its sender's report, and then the two counts differ, or after it, and then its sender had become
/// active before. So one round of reports decides. Only reports from after the question count: who was killed between
/// its report and our close() is lost, and named. The decision is sent to all, who confirm it, so that the one who
/// decides is the last to go.
///
/// Who decides follows from who is there, so all must agree on that. A broken connection is a loss at both its ends,
/// but the first message over the next one shows only its receiver that the other is there after all; so whoever closes
/// greets those that it has lost, once, and the living answer.
///
/// A barrier is the same without the idleness: everybody has come. Barriers are counted, so that whoever hears twice
/// that one was passed takes it for one. A member says how many it has come to and knows to have been passed; the last
/// that it said holds, so it may also give one up, because somebody was lost. Who has just been started, perhaps anew,
/// does not know how many there were before, and is told so when it first comes to one; only then its coming counts. It
/// may be the one who decides: then it learns it from what the others say, and if nobody knows, there were none.
///
/// Without threads or sockets of its own: messages go in and, through `send`, out. Any thread.
class Closing {
 public:
  using Send = std::function<void(base::Rank to, wire::Message message)>;

  Closing(base::Rank self, int size, Send send, std::function<void()> changed);

  /// This member wants to close.
  void begin(Activity now);
  /// Something has changed. Does nothing before begin().
  void update(Activity now);
  /// This member enters its next barrier; its number, of this life.
  uint64_t enter_barrier();
  /// It does not wait there any more. False if it need not: the barrier has been passed meanwhile.
  bool give_up_barrier(uint64_t number);
  /// This member alone goes.
  void leave();
  /// Then it may.
  bool all_know_we_left() const;

  void on_message(base::Rank from, const wire::Message& message);
  void on_lost(base::Rank rank);
  /// Something came from it, so it is there (again).
  void on_alive(base::Rank rank);

  /// For the one who decides: everybody knows.
  bool confirmed() const;
  bool barrier_passed(uint64_t number) const;
  std::set<base::Rank> lost() const;

 private:
  enum class What : uint8_t { Report, Ask, Decided, Confirmed, Enter, Pass, Lost, Left, KnowYouLeft, Greet, Here };
  struct Note;
  struct Report {
    Activity activity;
    bool asked = false;  // Its sender knew that we want to close.
  };
  /// How far a member is with barriers.
  struct Entry {
    uint64_t look = 0;     // Counts up: of two of them, the later one holds.
    uint64_t entered = 0;  // With those before its life, once it knows of them.
    uint64_t passed = 0;
    bool knows = false;
    bool waits() const { return entered > passed; }
  };
  using Outbox = std::vector<std::pair<base::Rank, wire::Message>>;

  base::Rank decider() const REQUIRES(mutex_);
  bool present(base::Rank rank) const REQUIRES(mutex_);
  std::vector<base::Rank> others() const REQUIRES(mutex_);
  void send_to_others(Outbox& out, const Note& note) const REQUIRES(mutex_);
  bool may_wait() const REQUIRES(mutex_);
  void enter(Outbox& out) REQUIRES(mutex_);
  void on_entry(base::Rank rank, const Entry& entry, Outbox& out) REQUIRES(mutex_);
  void learn(uint64_t passed, Outbox& out) REQUIRES(mutex_);
  void remove(base::Rank rank, std::set<base::Rank>& to, Outbox& out) REQUIRES(mutex_);
  void report(Outbox& out) REQUIRES(mutex_);
  void ask(base::Rank rank, Outbox& out) const REQUIRES(mutex_);
  void ask_all(Outbox& out) REQUIRES(mutex_);
  void greet_lost(Outbox& out) const REQUIRES(mutex_);
  void consider(Outbox& out) REQUIRES(mutex_);
  void consider_barrier(Outbox& out) REQUIRES(mutex_);
  void tell_how_far(Outbox& out) REQUIRES(mutex_);
  void dispatch(Outbox out) EXCLUDES(mutex_);

  const base::Rank self_;
  const int size_;
  const Send send_;
  const std::function<void()> changed_;

  mutable base::Mutex mutex_;
  bool begun_ GUARDED_BY(mutex_) = false;
  bool decided_ GUARDED_BY(mutex_) = false;
  bool leaving_ GUARDED_BY(mutex_) = false;
  Activity now_ GUARDED_BY(mutex_);
  Entry mine_ GUARDED_BY(mutex_);
  uint64_t before_ GUARDED_BY(mutex_) = 0;  // Barriers that were passed before this life, once it knows.
  std::map<base::Rank, Report> reports_ GUARDED_BY(mutex_);
  // Because they want to close. Several, while members do not agree yet on who is lost, and so on who decides.
  std::set<base::Rank> asked_by_ GUARDED_BY(mutex_);
  std::optional<base::Rank> reported_to_ GUARDED_BY(mutex_);  // Last.
  std::map<base::Rank, Entry> entries_ GUARDED_BY(mutex_);
  std::set<base::Rank> confirmed_ GUARDED_BY(mutex_);
  std::set<base::Rank> lost_ GUARDED_BY(mutex_);
  std::set<base::Rank> left_ GUARDED_BY(mutex_);
  std::set<base::Rank> know_we_left_ GUARDED_BY(mutex_);
};

}  // namespace farad::rpc
