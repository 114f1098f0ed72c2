#pragma once

#include <farad/future.h>

#include <exception>
#include <map>
#include <mutex>
#include <vector>

#include "demo/schedule.h"

namespace farad::demo {

/// Keeps the forwards of one worker to its schedule: each begins when everything before it in the order has ended. A
/// backward comes when its gradient does and never waits, for it makes room; so the most that is kept is what the
/// schedule says, or less. When the whole order is done it begins again, for the next batch. Any thread.
class Turns {
 public:
  explicit Turns(std::vector<Action> order);

  /// Ready when this forward may begin. No thread waits for it: what follows by then() runs on the threads of the
  /// worker that asks.
  Future<void> await(int micro_batch, int chunk);
  void end(const Action& action);
  /// Whoever waits now or later gets `error`: something before it will never end.
  void fail(std::exception_ptr error);

  /// The most forwards whose backward had not ended, so far.
  int most_kept() const;

 private:
  /// Takes out the promises of those whose turn it is. They are kept outside the lock: what waits may run at once.
  std::vector<Promise<void>> due();
  size_t place_of(const Action& action) const;

  const std::vector<Action> order_;
  mutable std::mutex mutex_;
  std::vector<bool> ended_;
  size_t first_open_ = 0;  // All before it have ended.
  std::map<size_t, Promise<void>> waiting_;
  std::exception_ptr failure_;
  int kept_ = 0;
  int most_kept_ = 0;
};

}  // namespace farad::demo
