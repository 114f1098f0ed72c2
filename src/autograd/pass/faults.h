#pragma once

namespace farad::autograd {

/// For tests: the protocol with one thing done wrong. A suite that does not fail then proves nothing.
struct Faults {
  bool drop_nulls = false;              ///< recvs outside the pass stay silent
  bool done_early = false;              ///< DONE while one node has not fired
  bool answer_twice = false;            ///< each GRADS goes out again
  bool ignore_live_bits = false;        ///< an answer with one live tensor makes all of them live
  bool null_is_live = false;            ///< a null runs the send as a gradient does
  bool ignore_late_recvs = false;       ///< forward messages that come after the start stay unanswered
  bool ignore_late_gradients = false;   ///< FAST: so do gradients that another pass brings
  bool blame_gradients = false;         ///< FAST: a gradient that is on its way is taken for a call that is not used
  bool done_names_later_peers = false;  ///< DONE lists peers that were met after the start
  bool commit_alone = false;            ///< the root commits when its own part is done
  bool keep_abort = false;              ///< an ABORT is not passed on
  bool decide_when_done = false;        ///< one that is done drops the pass when a peer is lost
  bool orphans_drop = false;            ///< one that is done drops the pass when the root is lost
  bool forget_passes = false;           ///< no tombstones
  bool wait_for_lost = false;           ///< sends to workers lost before the start wait for an answer
  bool lose_live_grads = false;         ///< a live gradient for a worker lost before the start is dropped
  bool ignore_disputes = false;         ///< workers need not agree on who was lost before, nor on what that cost
  bool ignore_lost_gradients = false;   ///< SMART: of gradients, fewer may be taken than were sent
  bool commit_inner = false;            ///< a pass within another commits by itself
  bool skip_balance = false;            ///< FAST: channels need not balance
};

}  // namespace farad::autograd
