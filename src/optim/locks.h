#pragma once

#include <functional>
#include <list>
#include <vector>

#include "base/mutex.h"
#include "optim/transaction.h"

namespace farad::optim {

/// Which step may touch which parameters of this worker, so that optimizers that share some take turns. Any thread.
///
/// Who asks for several gets all of them or waits for all, in the order of asking. Waiting on several workers is safe
/// in the order of their ranks; otherwise one only tries.
class ParameterLocks {
 public:
  using Parameters = std::vector<const void*>;  ///< sorted
  /// Called once, where no lock is held: with true when the parameters are the step's, with false if it gave up.
  using Granted = std::function<void(bool granted)>;

  /// False if somebody has one of them, or was first in asking.
  [[nodiscard]] bool try_lock(StepId step, const Parameters& parameters) EXCLUDES(mutex_);
  /// `granted` may be called right here.
  void lock(StepId step, Parameters parameters, Granted granted) EXCLUDES(mutex_);
  /// If the step still waits, it gives up.
  void give_up(StepId step) EXCLUDES(mutex_);
  /// If it has parameters, it lets go of them.
  void unlock(StepId step) EXCLUDES(mutex_);

  /// The worker ends: whoever waits, or would, is forgotten, and `granted` is let go of without a call.
  void close() EXCLUDES(mutex_);

 private:
  struct Claim {
    StepId step;
    Parameters parameters;
    Granted granted;
    bool held = false;
  };
  /// Whether nobody before `end` claims one of them.
  bool is_free(const Parameters& parameters, std::list<Claim>::const_iterator end) const REQUIRES(mutex_);
  /// Those whose turn it is now, to be told once no lock is held.
  [[nodiscard]] std::vector<Granted> grant() REQUIRES(mutex_);

  base::Mutex mutex_;
  std::list<Claim> claims_ GUARDED_BY(mutex_);  // in the order of asking
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace farad::optim
