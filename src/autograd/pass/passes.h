#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "autograd/ids.h"
#include "autograd/pass/effects.h"
#include "autograd/pass/faults.h"
#include "autograd/pass/message.h"
#include "autograd/pass/pass.h"
#include "autograd/pass/progress.h"
#include "autograd/topology.h"

namespace farad::autograd {

/// One worker's part in a context, when a pass begins.
struct Snapshot {
  std::shared_ptr<const Topology> topology;
  std::vector<Link> roots;        ///< at the pass's root; elsewhere none
  std::vector<base::Rank> peers;  ///< workers that a message with the context's id went to or came from
  std::vector<base::Rank> lost;   ///< those of them that were lost since
};

/// What Passes asks while it runs. Must not call it back.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual std::vector<base::Rank> members() const = 0;  ///< of the group
  virtual std::string describe(PairId pair) const = 0;  ///< the call: function, caller, callee
};

/// The backward passes of one context at one worker: the protocol, with neither tensors nor threads nor sockets.
///
/// What happens goes in by the functions below, in any order and however late; what is to be done comes out as Effects.
/// Guarantees, as long as every message arrives or both its ends hear on_lost (docs/design/backward.md argues them):
///  - A node is handed out by next_ready() if and only if a root leads to it, and once; a send or recv knows that per
///    tensor. A SMART pass needs every call to return, and none to be used.
///  - Every pass ends, everywhere it began, by exactly one Ending, once its nodes have run: committed at all survivors
///    or at none. That holds for one worker lost at any moment, and for broken connections that can be made anew.
///    Two lost at once, the root and the only one that heard it commit, may leave it committed at some.
///  - A pass that was begun within another ends as that one does, everywhere.
///  - It ends with a failure if a node fails, a worker is lost that takes part, or FAST finds a call that is not used.
///    A worker that was lost before takes no part; the pass fails only if a gradient would have to go there.
///
/// One object per context, so that contexts need no common lock, and so that its end is the end of all it remembers:
/// ids of passes that are over are kept till then, and what comes too late for them starts nothing.
///
/// A value: copies go their own ways. One thread at a time; who uses it from several has a lock, which need not be held
/// while effects are carried out or nodes run.
class Passes {
 public:
  /// `life`: see PassId.
  Passes(ContextId context, base::Rank self, const Surroundings& surroundings, Faults faults = {}, uint64_t life = 0);

  /// `backward` was called here. Ends with an Ending; until then fail() cancels it.
  PassId begin(bool fast, std::string options, Effects& out);
  /// A node of `outer`, which runs here now, wants a pass of its own. Once that is complete Effects::held says so, and
  /// the node may go on; its gradients count if and only if the outer pass's do. If it cannot be completed it ends
  /// first, with a failure, and the node has to fail as well. No pass, number 0, if the outer one has ended already.
  PassId begin_within(PassId outer, std::string options, Effects& out);
  /// What Effects::scans asked for. Ignored if the pass has ended meanwhile.
  void scanned(PassId pass, const Snapshot& snapshot, Effects& out);

  void on_message(base::Rank from, PassMessage&& message, Effects& out);
  /// What was sent to that worker may not have arrived, and nothing that it sent before will.
  void on_lost(base::Rank worker, Effects& out);

  /// A node to run, now; no_node if there is none. Recvs too: for their hooks.
  NodeIndex next_ready(PassId pass);
  bool has_ready(PassId pass) const;
  void ran(PassId pass, NodeIndex node, Effects& out, bool live = true);
  /// A node threw, or at the root: whoever waits for the pass has given up.
  void fail(PassId pass, PassFailure failure, Effects& out);

  /// A message from `peer` was recorded: of the forward pass, or a `gradient` that another pass has brought. Every pass
  /// that began before answers it with null, if it is one that `concerned` says yes to (not the one that brought it,
  /// for example); but in FAST not a call, which the pass does not use.
  void late_recv(PairId pair, base::Rank peer, bool gradient, Effects& out,
                 const std::function<bool(PassId)>& concerned = {});
  /// A call failed: nobody will answer its send, so we do.
  void null_send(PairId pair, Effects& out);

  /// Somebody wants to read gradients here. He may when Effects::readers names him, which is at once if no pass is
  /// done and undecided: by then the passes that ended at their roots before now have ended here.
  void read(uint64_t reader, Effects& out);

  /// The context ends here, and with it what has not ended. Afterwards answer_released() speaks for it.
  void close(Effects& out);
  /// True and the answer, if a message for a context that was released here wants one.
  static bool answer_released(base::Rank self, const PassMessage& message, PassMessage& answer);

  std::vector<Progress> progress() const;           ///< of all that have not ended
  size_t active() const { return passes_.size(); }  ///< passes that began here, or had answers, and have not ended
  auto fields() const { return std::tie(passes_, over_, readers_, counter_); }

 private:
  struct Tombstone {
    bool committed = false;
    PassFailure failure;
    auto fields() const { return std::tie(committed, failure); }
  };
  struct Reader {
    uint64_t number = 0;
    std::vector<PassId> undecided;
    auto fields() const { return std::tie(number, undecided); }
  };

  Pass* find(PassId id);
  const Pass* find(PassId id) const { return const_cast<Passes*>(this)->find(id); }
  Pass& find_or_keep(PassId id);
  bool is_root(const Pass& pass) const { return pass.id.root == self_; }
  void purge();

  // passes.cpp: how a pass begins, and what comes in.
  PassId begin_root(bool fast, std::string options, std::vector<PassId> within, Effects& out);
  void begin_here(Pass& pass, base::Rank by, PassMessage& message, Effects& out);
  void go_on(Pass& pass, Effects& out);
  void make_channels(Pass& pass, const Snapshot& snapshot);
  uint32_t channel_to(Pass& pass, base::Rank peer) const;
  void answer_unreached(Pass& pass, Effects& out);
  bool is_dropped(const std::vector<PassId>& within, PassFailure& failure) const;
  void on_late(base::Rank from, const PassMessage& message, const Tombstone& tombstone, Effects& out);

  // answers.cpp: what goes through it.
  void on_grads(Pass& pass, base::Rank from, const PassMessage& message, Effects& out);
  void answer_recv(Pass& pass, uint32_t recv, Effects& out);
  void answer_own(Pass& pass, PairId pair, NodeIndex recv, std::span<const TensorState> states, Effects& out);
  void answer_null(Pass& pass, PairId pair, base::Rank peer, Effects& out);
  void answer_send(Pass& pass, uint32_t send, std::span<const TensorState> states);
  void queue_answer(Pass& pass, uint32_t channel, Answer answer, std::span<const uint8_t> live);
  void give_up_send(Pass& pass, PairId pair);
  void flush(Pass& pass, Effects& out);
  void settle(Pass& pass, Effects& out);

  // endings.cpp: how it ends.
  void vote(Pass& pass, Effects& out);
  void report(Pass& pass, bool complete, Effects& out);
  void decide(Pass& pass, Effects& out);
  void commit(Pass& pass, Effects& out);
  void commit_outer(const std::vector<PassId>& within, Effects& out);
  void end_inner(PassId outer, bool committed, const PassFailure& failure, Effects& out);
  void abort(Pass& pass, const PassFailure& failure, Effects& out, const base::Rank* not_to = nullptr);
  void abort_or_ask(Pass& pass, const PassFailure& failure, Effects& out, const base::Rank* not_to = nullptr);
  void lost_during(Pass& pass, base::Rank worker, Effects& out);
  void ask_all(Pass& pass, Effects& out);
  void heard(Pass& pass, base::Rank member, Effects& out);
  void on_ask(base::Rank from, const PassMessage& message, Effects& out);
  bool answer_ask(PassId pass, base::Rank from, const PassMessage& ask, Effects& out);
  void on_over(Pass& pass, base::Rank from, const PassMessage& message, Effects& out);
  void end(Pass& pass, bool committed, const PassFailure& failure, Effects& out);
  void decided(PassId pass, const uint64_t* reader, Effects& out);

  // blame.cpp: what FAST waits for in vain.
  void blame(Pass& pass, base::Rank peer, Effects& out);
  void reply_unknown(Pass& pass, base::Rank from, const std::vector<Answer>& calls, Effects& out);
  void on_claim(Pass& pass, base::Rank from, const std::vector<Answer>& gradients, Effects& out);
  void accuse(Pass& pass, PairId unused, Effects& out);

  PassMessage message(const Pass& pass, PassKind kind) const;
  void open(const Pass& pass, PassMessage& message) const;
  PassMessage start(const Pass& pass) const;
  PassMessage ask(const Pass& pass) const;
  PassMessage over(PassId pass, Verdict verdict, const PassFailure& failure, uint64_t number = 0) const;
  static PassFailure lost(base::Rank worker, const std::string& how);

  ContextId context_;
  base::Rank self_;
  const Surroundings* surroundings_;
  Faults faults_;
  uint64_t life_;
  std::vector<Pass> passes_;
  std::map<PassId, Tombstone> over_;
  std::vector<Reader> readers_;
  uint64_t counter_ = 0;
};

}  // namespace farad::autograd
