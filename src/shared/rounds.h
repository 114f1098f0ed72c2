#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "shared/segment.h"
#include "shared/slots.h"
#include "shared/writer.h"

namespace farad::shared {

/// Where those meet who change a segment together. Who has come to a round once is a member from then on, until it
/// leaves or its process ends. A round ends once each of them has come: the last one does, for all, what is to be done
/// with what they brought, wholly or not at all. If that one is killed in the middle, another one does it.
///
/// One thread at a time.
class Rounds {
 public:
  struct Rules {
    bool fails_with_a_member = true;  ///< else the others go on without
    std::chrono::milliseconds late{
        0};  ///< from when on, after the first has come, who is not there is left out; 0 = never
  };
  Rounds(std::shared_ptr<Segment> segment, uint32_t seat, Writer& writer, const Slots& slots, Rules rules)
      : segment_(std::move(segment)), seat_(seat), writer_(writer), slots_(slots), rules_(rules) {}

  /// What is done at the end of a round, by one of them, in the order of their seats.
  using Ending = std::function<Writer::Work(const std::vector<Ticket>&)>;

  /// Comes to the open round with these, and waits for its end. PeerLost if a member has ended: then nothing is done,
  /// in no process, and the others are the members. Timeout if one does not come: then it can be tried again, unless
  /// it says that the round may have come about nevertheless.
  base::Status meet(const Ticket& mine, const std::vector<at::Tensor>& tensors, const Ending& ending,
                    base::TimePoint deadline, uint64_t& version);
  /// In that case what was brought to that round is in the values when this returns, or never will be.
  base::Status leave_last(base::TimePoint deadline);

 private:
  void arrive();
  void look_for_the_dead() const;
  bool end_if_all_are_here(const Ending& ending);
  void fail(Failure failure, uint32_t seat, uint32_t pid) const;
  base::Status outcome(uint64_t round) const;
  base::Status who_is_missing() const;
  base::TimePoint next_look(base::TimePoint deadline) const;
  base::TimePoint too_late_from() const;

  const std::shared_ptr<Segment> segment_;
  const uint32_t seat_;
  Writer& writer_;
  const Slots& slots_;
  const Rules rules_;
};

}  // namespace farad::shared
