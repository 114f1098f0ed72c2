#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "autograd/ids.h"
#include "autograd/topology.h"
#include "base/status.h"

namespace farad::autograd {

/// What the workers of a pass tell each other. Any message may overtake any other.
enum class PassKind : uint8_t {
  Start,   ///< take part; in FAST only where somebody waits in vain
  Grads,   ///< answers to sends
  Done,    ///< SMART, to the root: all of my part has fired, and these are my peers
  Report,  ///< FAST, to the root: I am idle, and this is what went through my channels
  Blame,   ///< FAST, from the root: nothing moves, and you wait for that peer; if a call is why, fail the pass by name
  Which,   ///< FAST, to that peer: which of these calls do you not know of?
  Those,   ///< FAST, its reply, if there are any
  Claim,   ///< FAST, to that peer: answer these gradients of other passes also if they come after you have begun
  Fail,    ///< to the root, by one that is done and so may not decide: please abort
  Commit,  ///< from the root: gradients count
  Abort,   ///< they never will
  Ask,     ///< what became of the pass?
  Over,    ///< the answer; also to what comes too late for a pass that was aborted
};

/// What a tensor's gradient is.
enum class TensorState : uint8_t {
  Null,       ///< no root leads to it
  Undefined,  ///< one does, but there is no value
  Tensor,     ///< it lies beside the message
};

/// The answer to one send.
struct Answer {
  PairId pair;
  NodeIndex node = no_node;  ///< where it goes out: the recv; not on the wire
  uint32_t tensors = 0;      ///< how many of the message's states are its own; 0 = all of them Null
  auto fields() const { return std::tie(pair, node, tensors); }
};

/// What went between the reporting worker and one peer.
struct ChannelReport {
  base::Rank peer;
  uint64_t sent = 0, received = 0;  ///< FAST: Grads messages. SMART: answers that are not null
  uint64_t unanswered = 0;          ///< our sends to it
  auto fields() const { return std::tie(peer, sent, received, unanswered); }
};

/// Why a pass was aborted: where, and what. `culprit` is the worker that failed or was lost; who shows this to a user
/// says before `what` which pass it was, and where.
struct PassFailure {
  base::Code code = base::Code::Aborted;
  base::Rank culprit;
  std::string what;
  auto fields() const { return std::tie(code, culprit, what); }
};

enum class Verdict : uint8_t { Undecided, Committed, Dropped };

/// One message of a pass; which members count depends on the kind.
struct PassMessage {
  PassKind kind = PassKind::Start;
  ContextId context;
  PassId pass;

  bool fast = false;           ///< Start, Grads
  bool opens = false;          ///< Start, and in FAST the first Grads to a peer: `options` are here, begin
  std::string options;         ///< of the pass; only who runs nodes understands them: a few bytes
  std::vector<PassId> within;  ///< with `opens`, and Ask: see Pass::within

  std::vector<Answer> answers;      ///< Grads; Which, Those and Claim: only the pairs
  std::vector<TensorState> states;  ///< Grads: of all answers, one after another

  std::vector<base::Rank> peers;     ///< Done: as they were when the sender started
  std::vector<base::Rank> left_out;  ///< Done, Report: those that were lost to the sender before

  uint64_t number = 0;                   ///< Report: a newer one has a larger; Ask, Over: the asker's
  bool complete = false;                 ///< Report: every node has fired
  std::vector<ChannelReport> channels;   ///< Report, Done
  base::Rank blamed;                     ///< Blame: the peer
  bool orphaned = false;                 ///< Ask: the asker has lost the root
  Verdict verdict = Verdict::Undecided;  ///< Over
  PassFailure failure;                   ///< Abort, Fail, Over with Dropped

  /// The tensors that lie beside it, or whatever else its owner wants to find again: carried, never looked into.
  std::shared_ptr<const void> cargo;

  /// All but the cargo.
  auto fields() const {
    return std::tie(kind, context, pass, fast, opens, options, within, answers, states, peers, left_out, number,
                    complete, channels, blamed, orphaned, verdict, failure);
  }
};

/// Everything but the cargo and the answers' nodes, behind what `out` holds.
void encode(const PassMessage& message, std::vector<char>& out);

/// Protocol if `size` bytes at `data` are not exactly one message. Neither throws nor reserves more than the bytes
/// warrant, whatever they are.
base::Status decode(const char* data, size_t size, PassMessage& message);

const char* to_string(PassKind kind);

}  // namespace farad::autograd
