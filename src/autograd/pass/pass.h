#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/pass/ballot.h"
#include "autograd/pass/message.h"
#include "autograd/pass/wave.h"

namespace farad::autograd {

/// How far a pass has come at one worker.
enum class PassState : uint8_t {
  Early,     ///< answers came, but not what begins it: they are kept
  Scanning,  ///< it has begun; the snapshot is being looked at
  Running,   ///< not all has fired
  Done,      ///< all has, and the root was told: it alone decides from here on
  Orphan,    ///< done, and the root is lost: the others are asked whether it had decided
  Ended,
};

/// What one worker keeps of one pass. Passes does the thinking.
struct Pass {
  static constexpr uint32_t to_lost = UINT32_MAX;

  /// To one peer, or to ourselves.
  struct Channel {
    base::Rank peer;
    bool opened = false;          // FAST: it was sent the options
    bool dirty = false;           // there is something to be sent
    std::vector<Answer> answers;  // that
    std::vector<TensorState> states;
    uint64_t sent = 0, received = 0;  // FAST: Grads messages; SMART: answers that are not null
    uint64_t unanswered = 0;          // sends
    auto fields() const { return std::tie(peer, opened, dirty, answers, states, sent, received, unanswered); }
  };

  PassId id;
  PassState state = PassState::Early;
  bool fast = false;
  std::string options;
  /// The passes it is a part of, the innermost first: one of their nodes began it and went on once it was complete.
  /// What becomes of them becomes of it.
  std::vector<PassId> within;
  bool held = false;  ///< at the root: complete, and waits for what becomes of those
  base::Rank begun_by;
  std::vector<base::Rank> peers;     ///< of the snapshot, in order; those that were lost before are not among them
  std::vector<base::Rank> left_out;  ///< those
  std::vector<base::Rank> others;    ///< who told us of the pass and is none of these

  Wave wave;
  std::vector<Channel> channels;                     ///< by peer, in order; to ourselves; FAST: to those met later
  std::vector<uint32_t> dirty;                       ///< channels
  std::vector<uint32_t> send_order;                  ///< the sends by pair
  std::vector<uint8_t> nulled;                       ///< by send: its call failed, so we answered it ourselves
  std::vector<uint32_t> send_channel, recv_channel;  ///< by send and recv: the channel, or to_lost
  uint64_t reports = 0;
  bool unreported = false;  ///< FAST: since the last report something went through a channel

  std::vector<std::pair<base::Rank, PassMessage>> early;  ///< Grads that came before the snapshot
  std::vector<PairId> early_nulls;                        ///< calls that failed meanwhile
  std::vector<base::Rank> early_losses;                   ///< workers that were lost meanwhile

  std::vector<PairId> late;    ///< FAST: gradients that other passes have brought since it began
  std::vector<PairId> wanted;  ///< FAST: such that have not come yet, and that their sender wants to be answered

  Ballot ballot;                    ///< at the root
  bool blamed = false;              ///< at the root: all whose calls may be why nothing moves were told so
  std::vector<base::Rank> unheard;  ///< Orphan: who has not answered yet
  struct Asker {
    base::Rank worker;
    PassId pass;  ///< this one, or one within it
    auto fields() const { return std::tie(worker, pass); }
  };
  std::vector<Asker> askers;          ///< orphans that want to know what becomes of it
  std::vector<base::Rank> met_later;  ///< see Faults::done_names_later_peers

  bool is_neighbour(base::Rank worker) const {
    return std::binary_search(peers.begin(), peers.end(), worker) ||
           std::find(others.begin(), others.end(), worker) != others.end();
  }
  void heard_from(base::Rank worker) {
    if (!is_neighbour(worker)) others.push_back(worker);
  }

  auto fields() const {
    return std::tie(id, state, fast, within, held, begun_by, peers, left_out, others, wave, channels, nulled, reports,
                    unreported, early, early_nulls, early_losses, late, wanted, ballot, blamed, unheard, askers,
                    met_later);
  }
};

}  // namespace farad::autograd
