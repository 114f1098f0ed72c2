#pragma once

#include <farad/future.h>

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "optim/transaction.h"

namespace farad::optim {

/// The steps that run on one worker, as an owner of parameters, and how the last ones ended. Any thread.
class Ledger {
 public:
  /// How this worker reaches other owners, and itself later.
  struct Services {
    int self = 0;
    std::function<Future<Standing>(int owner, StepId step, int leader)> ask;  ///< asked() there
    std::function<Future<Standing>(int owner, StepId step)> await;            ///< awaited() there
    std::function<void(std::function<void()> task)> later;                    ///< may wait
    /// Around each step: this worker stays for as long, because others may ask it.
    std::function<void()> begin_work = {};
    std::function<void()> end_work = {};
  };
  explicit Ledger(Services services);

  struct Entry {
    std::vector<int> owners;                     ///< all that take part, in the order of their ranks
    std::function<void(bool committed)> finish;  ///< once, where no lock is held: takes the new values or drops them
    std::function<void()> interrupt = {};        ///< what prepares it may give up
  };
  /// A step begins here. False if it has ended already: its end overtook its beginning.
  [[nodiscard]] bool open(StepId step, Entry entry) EXCLUDES(mutex_);
  /// It is prepared, or could not be. False if it has ended, for whatever reason; then `finish` was called.
  [[nodiscard]] bool prepared(StepId step, bool success) EXCLUDES(mutex_);

  /// The coordinator's word; ready when the step has ended here, which may be otherwise than it said.
  Future<Standing> commit(StepId step) EXCLUDES(mutex_);
  Future<Standing> abort(StepId step) EXCLUDES(mutex_);

  /// A leader asks; the coordinator counts no more.
  Standing asked(StepId step, int leader) EXCLUDES(mutex_);
  /// Another owner wants to know what this one finds out; ready when it has ended here.
  Future<Standing> awaited(StepId step) EXCLUDES(mutex_);

  /// Steps of that coordinator are settled among the owners. On the driving thread: short.
  void on_lost(int rank) EXCLUDES(mutex_);

  /// The worker ends: who waits for a step hears so, and none begins any more.
  void close() EXCLUDES(mutex_);

  /// False once it was given up, though what prepares it may not have noticed.
  bool is_open(StepId step) const EXCLUDES(mutex_);
  size_t open_steps() const EXCLUDES(mutex_);

 private:
  struct Running {
    Transaction transaction;
    Entry entry;
    Promise<Standing> ended;
    bool settling = false;
  };
  using Change = std::function<void(Transaction&)>;

  /// Lets it happen; if that ends the step, finishes it. Ready when it has ended.
  Future<Standing> change(StepId step, const Change& happen) EXCLUDES(mutex_);
  void finish(StepId step) EXCLUDES(mutex_);
  void begin_to_settle(StepId step) EXCLUDES(mutex_);
  void settle(StepId step, const std::vector<int>& owners) EXCLUDES(mutex_);
  /// Takes what that owner finds out. True if the step has ended.
  bool follow(StepId step, int leader) EXCLUDES(mutex_);
  void lead(StepId step, const std::vector<int>& owners) EXCLUDES(mutex_);
  void remember(StepId step, Standing outcome) REQUIRES(mutex_);

  const Services services_;

  mutable base::Mutex mutex_;
  std::map<StepId, Running> running_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  std::map<StepId, Standing> past_ GUARDED_BY(mutex_);
  std::deque<StepId> past_in_order_ GUARDED_BY(mutex_);
};

}  // namespace farad::optim
