#pragma once

#include <farad/debug.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/engine/scan.h"
#include "autograd/gradient_sums.h"
#include "autograd/ids.h"
#include "autograd/part.h"
#include "autograd/pass/passes.h"
#include "autograd/peers.h"
#include "autograd/recording.h"
#include "base/mutex.h"

namespace farad::autograd {

/// What is the same for all contexts of a worker.
struct Group {
  base::Rank self;
  std::vector<base::Rank> members;
  std::function<std::string(base::Rank)> name_of;
};

/// What one worker knows of one context: what was sent and received in it, its passes, the gradients of those that
/// succeeded. Any thread.
///
/// It ends by release(), which empties it; see Contexts for when.
class LocalContext final : private Surroundings {
 public:
  /// `life`: see PassId.
  LocalContext(ContextId id, std::shared_ptr<const Group> group, uint64_t life = 0);

  ContextId id() const { return id_; }
  uint64_t life() const { return life_; }
  bool made_here() const { return static_cast<uint64_t>(id_.value) >> 48 == group_->self.value; }
  const Group& group() const { return *group_; }

  // --- Messages that carry its id; those of the forward pass make a peer of the other end ---

  enum class Kind { Forward, Pass };
  /// Before one goes to `to`. False if the context is released: the message goes without it.
  [[nodiscard]] bool begin_message(base::Rank to, Kind kind = Kind::Forward) EXCLUDES(mutex_);
  /// One has come. False if the context is released: the message is taken without it.
  [[nodiscard]] bool take_message(net::Peer from, Kind kind = Kind::Forward) EXCLUDES(mutex_);

  // --- What was recorded ---

  void add(compat::Ptr<SendNode> node, uint64_t call = 0) EXCLUDES(mutex_);
  /// It takes part in every pass from now on. False if the context is released.
  [[nodiscard]] bool add(compat::Ptr<DeferredNode> node, RerunId rerun) EXCLUDES(mutex_);
  /// Of a pair that was sent or received here; 0 if it was not. See current.h.
  uint64_t path_of(PairId pair) const EXCLUDES(mutex_);
  /// Where calls happen that are made apart from the others, by another thread for example: another one each time.
  uint64_t new_path();
  /// The result that answers that call, if it is of this context.
  PairId result_of(net::Peer to, uint64_t call) const EXCLUDES(mutex_);

  // --- Passes. What they want done is done by Backward, where no lock is held. ---

  /// What is to be done after something happened to a pass.
  struct Work {
    Effects effects;
    /// For one of effects.scans: the part that the pass has here, and the context as it is now.
    struct Begun {
      std::shared_ptr<Part> part;
      Entries entries;
      std::vector<base::Rank> peers;
      std::vector<base::Rank> lost;
    };
    std::vector<Begun> begun;
    std::vector<std::vector<at::Tensor>> tensors;       ///< for each of effects.messages
    std::vector<std::shared_ptr<Part>> ended;           ///< to be let go of
    std::vector<compat::Ptr<SendNode>> forgotten;       ///< likewise
    std::shared_ptr<const void> remains;                ///< likewise, of a context that was released
    std::vector<compat::Ptr<DeferredNode>> deferred;    ///< likewise, once they have heard that the context has ended
    std::vector<std::shared_ptr<Part>> woken;           ///< whose nodes somebody has to run now ...
    std::vector<std::shared_ptr<net::Waiter>> waiters;  ///< ... if it is not one of those that wait here

    bool is_light() const { return begun.empty() && woken.empty(); }  ///< nothing in it takes long, but for its end:
    bool has_graphs() const { return !ended.empty() || !forgotten.empty() || remains; }
  };
  /// Lets `change` happen, all at once, and gathers what it leads to. `change` is short and calls out nowhere. Nothing
  /// happens once the context is released.
  Work step(const std::function<void(Passes&, Effects&)>& change) EXCLUDES(mutex_);

  /// A pass begins here, as its root. False if the context is released.
  [[nodiscard]] bool begin(bool fast, std::string options, std::shared_ptr<Part> part, Work& work) EXCLUDES(mutex_);
  /// The same for a pass that a node of `outer` begins, while it runs here. False if that one has ended.
  [[nodiscard]] bool begin_within(PassId outer, std::shared_ptr<Part> part, Work& work) EXCLUDES(mutex_);
  /// That one was run again in vain: what was recorded for it goes, and what comes is not recorded. Returns those who
  /// may have more of it; nobody if that was heard before.
  std::vector<base::Rank> forget(RerunId rerun, Work& work) EXCLUDES(mutex_);
  /// What Work::begun asked for.
  Work scanned(Part& part, const Snapshot& snapshot) EXCLUDES(mutex_);
  /// A recv, and an answer of null for the passes that came before it (but for the one it belongs to). Most often there
  /// are none, and so there is nothing to be done.
  std::optional<Work> add(PairId pair, Recording::Received received) EXCLUDES(mutex_);
  /// A message of the forward pass is on its way to that life, and with it `pair`, if that is not 0. To be done is
  /// something only if that life is over.
  std::optional<Work> went(PairId pair, net::Peer to) EXCLUDES(mutex_);
  /// A send that never got there.
  Work drop(PairId pair) EXCLUDES(mutex_);
  Work on_lost(net::Peer peer) EXCLUDES(mutex_);
  /// What came of a deferred node.
  Work completed(Part& part, Part::Completion completion) EXCLUDES(mutex_);
  /// What a thread that runs a part does next: feed it `arrivals` and `completions`, then run `node`; none of it if it
  /// has to wait or has ended. Then the part is not running any more, and will be woken.
  struct Next {
    NodeIndex node = no_node;
    std::vector<Part::Arrival> arrivals;
    std::vector<Part::Completion> completions;
    std::vector<at::Tensor> answer;  ///< of a recv, once it was run: what is to be sent
    bool deferred = false;           ///< the node was only begun
    bool none() const { return node == no_node && arrivals.empty() && completions.empty(); }
  };
  void next(Part& part, Next& next) EXCLUDES(mutex_);
  /// The same, after that was done.
  void ran(Part& part, Next& next, Work& work) EXCLUDES(mutex_);
  /// For the thread that called backward: true if there is something to run or to hear, otherwise `waiter` is told once
  /// there is.
  bool has_news(Part& part, const std::shared_ptr<net::Waiter>& waiter) EXCLUDES(mutex_);
  /// And whether there is nothing more to wait for: it has ended, or is complete within another pass.
  bool is_over(const Part& part) const EXCLUDES(mutex_);
  /// Whether gradients may be read now. If not, `waiter` is told once they may; see Passes::read().
  Work read(const std::shared_ptr<net::Waiter>& waiter) EXCLUDES(mutex_);

  /// Whether they may be read now for certain, without asking anybody.
  bool is_settled() const EXCLUDES(mutex_);

  /// What passes have found here, to be read or added up; null if that is nothing.
  std::shared_ptr<GradientSums> sums() const EXCLUDES(mutex_);
  /// Replaces a gradient that is there.
  void set_gradient(const at::Tensor& leaf, at::Tensor gradient) EXCLUDES(mutex_);

  // --- The end ---

  enum class Keep { Nothing, Gradients };
  /// Empties it, unless that was done before, but for what is to be kept.
  Work release(Keep keep = Keep::Nothing) EXCLUDES(mutex_);
  bool released() const EXCLUDES(mutex_);

  Debug::Context describe() const EXCLUDES(mutex_);
  /// Where a pass would come in if one began now.
  Work::Begun look() const EXCLUDES(mutex_);

 private:
  std::vector<base::Rank> members() const override { return group_->members; }
  std::string describe(PairId pair) const override REQUIRES(mutex_);

  void gather(Work& work) REQUIRES(mutex_);
  void take_next(Part& part, Next& next) REQUIRES(mutex_);
  Work drop_now(compat::Ptr<SendNode>& node, PairId pair) REQUIRES(mutex_);
  void forget_now(RerunId rerun, Work& work) REQUIRES(mutex_);
  Work::Begun snapshot(std::shared_ptr<Part> part) const REQUIRES(mutex_);

  const ContextId id_;
  const uint64_t life_;
  const std::shared_ptr<const Group> group_;

  std::atomic<uint64_t> apart_{0};
  mutable base::Mutex mutex_;
  bool released_ GUARDED_BY(mutex_) = false;
  Peers peers_ GUARDED_BY(mutex_);
  Recording recording_ GUARDED_BY(mutex_);
  std::vector<std::pair<compat::Ptr<DeferredNode>, RerunId>> deferred_ GUARDED_BY(mutex_);
  Passes passes_ GUARDED_BY(mutex_);
  std::map<PassId, std::shared_ptr<Part>> parts_ GUARDED_BY(mutex_);
  std::set<RerunId> in_vain_ GUARDED_BY(mutex_);           // See forget().
  std::shared_ptr<GradientSums> sums_ GUARDED_BY(mutex_);  // Null while there is none.
  uint64_t read_ GUARDED_BY(mutex_) = 0;                   // how often somebody wanted to
  std::map<uint64_t, std::shared_ptr<net::Waiter>> readers_ GUARDED_BY(mutex_);
};

}  // namespace farad::autograd
