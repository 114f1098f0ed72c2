#pragma once

#include <farad/debug.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "autograd/ended_contexts.h"
#include "autograd/local_context.h"
#include "base/mutex.h"
#include "wire/message.h"

namespace farad::autograd {

/// Ids that are unique in the group: the rank in the upper sixteen bits, below it a number that counts up from a place
/// that is another one in each life of a worker.
uint64_t first_number(uint64_t birth);
constexpr uint64_t make_id(base::Rank rank, uint64_t number) {
  return uint64_t{rank.value} << 48 | (number & ((uint64_t{1} << 48) - 1));
}

/// The contexts of one worker: made here, or where they are first seen; ended by their maker and then everywhere.
///
/// Whether a context has ended, its maker knows, and nobody else decides: its id names it, and it never makes one of
/// its own again. Whoever gets to see a context, by whatever message and however late, tells its maker (Joined). That
/// one answers if the context is over, or tells all who have joined once it is (Ended). Who has heard that remembers it
/// for a while, and takes late messages as being of none. Who never had the context, or has forgotten that it has
/// ended, cannot know; but what makes it there brings the answer that ends it.
///
/// A lost connection to the maker may have taken with it what either has told the other, so each is followed by a
/// question (StillThere), which the maker answers in any case (Runs, Ended). One that was restarted has none of its
/// former contexts. One that is gone for good answers nothing, and is given up when a few connections in a row were
/// lost without an answer. This ends every context everywhere: whoever has one has told so in a life of the connection
/// that is not lost to him. Either that has come to the maker before the end, which is then told in that life or in a
/// later one; and if it does not arrive, or is told in a later one, then the former is lost to him as well, and he
/// asks. Or it has come after the end, and is answered, of which the same is true.
///
/// A maker that was given up wrongly loses what this worker had, but no gradient unnoticed: a pass refuses gradients
/// for a message that was not recorded.
///
/// All this is told in batches, by a task of its own: whoever ends a context does not wait for it, but sends what has
/// gathered if it is a batch already. Any thread.
class Contexts {
 public:
  struct Services {
    /// The body of a message, for on_news() there. False if there is nobody.
    std::function<bool(base::Rank to, wire::Bytes body)> post;
    /// On another thread, after a moment in which more of the kind may come together.
    std::function<void(std::function<void()> task)> later;
    /// Does what came of something that happened to a context.
    std::function<void(const std::shared_ptr<LocalContext>&, LocalContext::Work&&)> perform;
  };
  /// So many news for one worker go without waiting for more: until they are told, contexts stay where they have ended.
  static constexpr size_t many = 16;
  /// So many connections in a row that were lost without an answer are a maker that is gone.
  static constexpr int most_unanswered = 3;

  Contexts(std::shared_ptr<const Group> group, uint64_t birth, Services services);

  /// A new one, of this worker.
  std::shared_ptr<LocalContext> make() EXCLUDES(mutex_);
  /// Null if it is not here, or not any more.
  std::shared_ptr<LocalContext> find(ContextId id) const EXCLUDES(mutex_);
  /// A message of that context has come: finds it, or makes what this worker has of it. Null if it has ended.
  std::shared_ptr<LocalContext> take_message(ContextId id, net::Peer from,
                                             LocalContext::Kind kind = LocalContext::Kind::Forward) EXCLUDES(mutex_);

  /// A recv was recorded.
  void add(const std::shared_ptr<LocalContext>& context, PairId pair, Recording::Received received);
  /// What is sent is on its way to that life; `pair` is what was recorded of it, if anything was.
  void went(const std::shared_ptr<LocalContext>& context, PairId pair, net::Peer to);
  /// What was sent never got there.
  void drop(const std::shared_ptr<LocalContext>& context, PairId pair);
  /// The same of the reply to that call, whichever context it was of.
  void drop_reply(net::Peer to, uint64_t call) EXCLUDES(mutex_);

  /// Ends it here; if it is of this worker, those who have it are told.
  void release(ContextId id) EXCLUDES(mutex_);
  /// All that are here and will be, and tells nobody: this worker ends.
  void close() EXCLUDES(mutex_);
  base::Status on_news(net::Peer from, std::span<const char> body);
  void on_lost(net::Peer peer) EXCLUDES(mutex_);

  void describe(Debug& debug) const EXCLUDES(mutex_);

 private:
  enum class News : uint8_t {
    // To its maker:
    Joined = 1,      ///< I have that context: tell me when it ends
    StillThere = 2,  ///< the same; and does it run?
    // From its maker:
    Runs = 3,
    Ended = 4,
  };
  using Entry = std::pair<ContextId, News>;
  struct Place {
    std::shared_ptr<LocalContext> context;
    std::set<base::Rank> joined;  // At its maker: who has it, too.
  };

  std::shared_ptr<LocalContext> find_or_make(ContextId id) EXCLUDES(mutex_);
  std::vector<std::shared_ptr<LocalContext>> all() const EXCLUDES(mutex_);
  std::vector<std::shared_ptr<LocalContext>> made_by(base::Rank maker) const EXCLUDES(mutex_);
  /// Out of the table; the place is empty if it was not there.
  Place take(ContextId id) EXCLUDES(mutex_);
  void give_up(base::Rank maker) EXCLUDES(mutex_);
  base::Status on_entry(base::Rank from, ContextId id, News news) EXCLUDES(mutex_);
  void answer(base::Rank from, ContextId id, News question) EXCLUDES(mutex_);
  void tell(base::Rank to, Entry entry) EXCLUDES(mutex_);
  void flush(bool due) EXCLUDES(mutex_);

  const std::shared_ptr<const Group> group_;
  const Services services_;

  mutable base::Mutex mutex_;
  uint64_t next_ GUARDED_BY(mutex_);
  uint64_t life_ GUARDED_BY(mutex_);  // Of the next one that is made here, of whichever worker.
  bool closed_ GUARDED_BY(mutex_) = false;
  std::map<ContextId, Place> places_ GUARDED_BY(mutex_);
  EndedContexts ended_ GUARDED_BY(mutex_);                   // Of other workers.
  std::map<base::Rank, int> unanswered_ GUARDED_BY(mutex_);  // Losses of makers, since they last answered.
  std::map<base::Rank, std::vector<Entry>> untold_ GUARDED_BY(mutex_);
  bool flush_is_due_ GUARDED_BY(mutex_) = false;  // Somebody will, later.
};

}  // namespace farad::autograd
