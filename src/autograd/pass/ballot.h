#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "autograd/pass/message.h"

namespace farad::autograd {

/// The root's count: who takes part in a pass, and whether it is over.
///
/// SMART: over when every worker that any DONE names, and every one that was named here, is done. Whoever is done has
/// had an answer to all that it had sent, so by then each has taken whatever gradients the others have sent it; unless
/// two disagree on what went between them, because a connection was lost and made anew: then the counts differ.
///
/// FAST: over when what was sent through each channel equals what was received, by everyone's last report. The reports
/// are of different moments, and yet this is safe: suppose some message was sent after its sender's report, and take
/// the first such. Its sender was idle at its report, so a message it had not yet received then has woken it; that one
/// was sent before *its* sender's report, or it would be an earlier first. So that channel's receiver had received
/// less of what was sent before the report than all of it; since it counts as many, it has received something sent
/// after the report, and earlier than the first such. There is none.
class Ballot {
 public:
  explicit Ballot(bool fast = false, bool skip_balance = false) : fast_(fast), skip_balance_(skip_balance) {}

  void name(base::Rank worker);
  void done(base::Rank worker, const PassMessage& done);
  void report(base::Rank worker, const PassMessage& report);

  /// Nothing of the pass is on its way any more, and nobody has anything to do.
  bool is_over() const;
  /// If it is: everything has fired. Always so in SMART.
  bool is_complete() const { return incomplete_ == 0; }

  /// If it is over: a worker that takes part and was left out by one that it has not itself left out, so that the two
  /// disagree on what went between them; none if there is no such.
  std::optional<base::Rank> disputed() const;

  /// SMART, if it is over: two workers of which the first has sent the second more gradients, or fewer, than that one
  /// has taken; none if there are no such.
  std::optional<std::pair<base::Rank, base::Rank>> unbalanced() const;

  /// FAST, over and not complete: workers that somebody waits for and that do not take part.
  std::vector<base::Rank> absent() const;
  /// If there are none: whose sends wait for whom. One that its peer does not know of is the cause; the others wait
  /// because of such a one.
  struct Wait {
    base::Rank at, peer;
  };
  std::vector<Wait> waits() const;

  bool has(base::Rank worker) const { return workers_.contains(worker); }
  std::vector<base::Rank> workers() const;  ///< all that were named
  std::vector<base::Rank> awaited() const;  ///< those of them that are not done; in FAST: or not with all

  auto fields() const { return std::tie(fast_, workers_, waiting_, incomplete_, balance_); }

 private:
  struct Worker {
    bool done = false;  // in FAST: has reported
    uint64_t number = 0;
    bool complete = false;
    std::vector<ChannelReport> channels;
    std::vector<base::Rank> left_out;
    auto fields() const { return std::tie(done, number, complete, channels, left_out); }
  };

  void count(base::Rank worker, const std::vector<ChannelReport>& channels, int64_t sign);
  void add(base::Rank from, base::Rank to, int64_t messages);

  bool fast_;
  bool skip_balance_;  // see Faults
  std::map<base::Rank, Worker> workers_;
  size_t waiting_ = 0;                                            // workers that were named and are not done
  size_t incomplete_ = 0;                                         // workers whose last report says so
  std::map<std::pair<base::Rank, base::Rank>, int64_t> balance_;  // by channel: sent and not received; none if zero
};

}  // namespace farad::autograd
