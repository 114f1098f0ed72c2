#pragma once

#include <farad/debug.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

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

/// The contexts of one worker: made here, or where they are first seen; released here and then everywhere.
///
/// A release is told in batches, by a task of its own: whoever ends a context does not wait for it. Any thread.
class Contexts {
 public:
  struct Services {
    /// The body of a message, for on_release() there. False if there is nobody.
    std::function<bool(base::Rank to, wire::Bytes body)> post;
    std::function<void(std::function<void()> task)> later;  ///< on another thread, soon
    /// Does what came of something that happened to a context.
    std::function<void(const std::shared_ptr<LocalContext>&, LocalContext::Work)> perform;
  };
  Contexts(std::shared_ptr<const Group> group, uint64_t birth, Services services);

  /// A new one, of this worker.
  std::shared_ptr<LocalContext> make() EXCLUDES(mutex_);
  /// Null if unknown or released.
  std::shared_ptr<LocalContext> find(ContextId id) const EXCLUDES(mutex_);
  /// A message of that context has come: finds it, or makes what this worker has of it. Null if it is released.
  std::shared_ptr<LocalContext> take_message(ContextId id, net::Peer from,
                                             LocalContext::Kind kind = LocalContext::Kind::Forward) EXCLUDES(mutex_);
  /// A message that was counted by begin_message() did not go after all.
  void undo_message(LocalContext& context, base::Rank to);

  /// A recv was recorded; `except` is the pass that it belongs to, if it is of one.
  void add(const std::shared_ptr<LocalContext>& context, PairId pair, Recording::Received received, PassId except = {});
  /// What was sent never got there.
  void drop(const std::shared_ptr<LocalContext>& context, PairId pair, base::Rank to);
  /// The same of the reply to that call, whichever context it was of.
  void drop_reply(net::Peer to, uint64_t call) EXCLUDES(mutex_);

  /// Empties the context here, and tells those it was met with.
  void release(ContextId id);
  /// All of them, and tells nobody: this worker ends.
  void close();
  base::Status on_release(net::Peer from, std::span<const char> body);
  void on_lost(net::Peer peer);

  void describe(Debug& debug) const EXCLUDES(mutex_);

 private:
  using Entry = std::pair<ContextId, uint64_t>;
  /// Why a context is released.
  enum class Reason {
    Over,       ///< its maker has ended it: all who have it follow
    MakerLost,  ///< its maker cannot be reached from here: others see for themselves
    Closing,    ///< this worker ends, and tells nobody
  };
  /// On top of a number of messages: MakerLost.
  static constexpr uint64_t maker_lost = uint64_t{1} << 62;
  /// Instead of a number of messages: one that was counted did not go.
  static constexpr uint64_t one_less = UINT64_MAX;
  /// Tell me of the release: to the maker of a context, from one who has lost a peer, and with that perhaps the way by
  /// which it would have heard; or after a release, to a peer that may have forgotten us with a loss.
  static constexpr uint64_t watches = UINT64_MAX - 1;
  /// I do not know that context, or not any more: nothing comes from me. Needs no answer.
  static constexpr uint64_t unknown = UINT64_MAX - 2;

  std::shared_ptr<LocalContext> find_or_make(ContextId id) EXCLUDES(mutex_);
  void watch(ContextId id) EXCLUDES(mutex_);
  bool knows(ContextId id) const EXCLUDES(mutex_);
  std::vector<std::shared_ptr<LocalContext>> all() const EXCLUDES(mutex_);
  void release(const std::shared_ptr<LocalContext>& context, Reason reason);
  void tell(const std::vector<std::pair<base::Rank, Entry>>& news) EXCLUDES(mutex_);
  void flush() EXCLUDES(mutex_);
  void on_unreachable(base::Rank peer, const std::vector<Entry>& untold) EXCLUDES(mutex_);
  void on_entry(net::Peer from, ContextId id, uint64_t messages);
  void forget_if_settled(const LocalContext& context) EXCLUDES(mutex_);

  const std::shared_ptr<const Group> group_;
  const Services services_;

  mutable base::Mutex mutex_;
  uint64_t next_ GUARDED_BY(mutex_);
  std::map<ContextId, std::shared_ptr<LocalContext>> contexts_ GUARDED_BY(mutex_);
  bool had_losses_ GUARDED_BY(mutex_) = false;  // From then on, makers are told who has their contexts.
  std::map<base::Rank, std::vector<Entry>> untold_ GUARDED_BY(mutex_);  // by whom to tell
};

}  // namespace farad::autograd
