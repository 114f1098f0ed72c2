#pragma once

#include <compare>
#include <cstdint>

namespace farad::optim {

/// One step of one optimizer. A step that is tried again is another one.
struct StepId {
  uint64_t optimizer = 0;  ///< unique in the group; its upper sixteen bits are its coordinator's rank
  uint64_t number = 0;
  auto operator<=>(const StepId&) const = default;
};

inline int coordinator_of(const StepId& step) { return static_cast<int>(step.optimizer >> 48); }

/// What an owner knows of the end of a step.
enum class Standing : uint8_t { Open, Committed, Aborted };

/// One step at one owner: which word ends it. No torch, no threads, no messages.
///
/// The coordinator commits once every owner has said that it is prepared. If the coordinator is lost the owners settle
/// it: the *leader* is the owner with the lowest rank that is left; it asks all others, commits if one has committed,
/// and aborts otherwise. Why survivors agree, whoever crashes when:
/// - An owner that was asked is *frozen*: it takes no word of the coordinator any more. So once all were asked, who has
///   committed stays the same; and if none has, none will.
/// - It promises itself to that leader and takes no word of one with a lower rank, which must have been lost. So what a
///   lost leader said just before either reached everybody that the next one asks, or is heard by nobody.
/// - Who is not yet prepared when asked aborts: the coordinator cannot have had its vote.
class Transaction {
 public:
  Standing standing() const { return standing_; }
  bool is_prepared() const { return prepared_; }
  bool is_frozen() const { return promised_ >= 0; }

  /// The new values lie beside the old ones.
  void prepare() { prepared_ = true; }
  /// The coordinator's word. Nothing happens if the owners settle it.
  void commit() {
    if (!is_frozen()) end(Standing::Committed);
  }
  void abort() {
    if (!is_frozen()) end(Standing::Aborted);
  }
  /// The owner cannot prepare it.
  void refuse() {
    if (!prepared_) end(Standing::Aborted);
  }
  /// `leader` asks, because the coordinator is lost.
  void freeze(int leader) {
    refuse();
    if (leader > promised_) promised_ = leader;
  }
  /// What `leader` has found out.
  void learn(int leader, Standing outcome) {
    if (leader >= promised_) end(outcome);
  }

 private:
  void end(Standing outcome) {
    if (standing_ == Standing::Open) standing_ = outcome;
  }

  Standing standing_ = Standing::Open;
  bool prepared_ = false;
  int promised_ = -1;
};

}  // namespace farad::optim
