#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "autograd/local_context.h"
#include "autograd/pass/message.h"
#include "base/mutex.h"

namespace farad::autograd {

/// Messages of passes that wait a moment for others to the same worker, and then go as one: to wake a worker costs as
/// much as a small part of a pass. Any thread.
///
/// What says that gradients count can wait longest. Nobody waits for it: whoever reads gradients asks the root.
class Outbox {
 public:
  struct Letter {
    std::shared_ptr<LocalContext> context;
    PassMessage message;
    std::vector<at::Tensor> tensors = {};
  };
  struct Parcel {
    base::Rank to;
    std::vector<Letter> letters;  ///< of one context if one of them has tensors: see Backward::post()
  };

  /// True if the caller is to see to it that take_all() is called after a while: the others are not bound to come.
  [[nodiscard]] bool keep(base::Rank to, Letter letter) EXCLUDES(mutex_);
  /// All of that context that is on its way, but for its commits.
  std::vector<Parcel> take(const LocalContext& context) EXCLUDES(mutex_);
  /// So many commits to one worker go without waiting for more. What they hold, here and there, is memory that would
  /// otherwise be used again while it is warm.
  static constexpr size_t many = 16;
  /// The commits to that worker, of whichever contexts, if they are many: one parcel, or none.
  std::vector<Parcel> take_if_many(base::Rank to) EXCLUDES(mutex_);
  /// Its commits to that worker: one parcel, or none.
  std::vector<Parcel> take_commits(const LocalContext& context, base::Rank to) EXCLUDES(mutex_);
  std::vector<Parcel> take_all() EXCLUDES(mutex_);

 private:
  base::Mutex mutex_;
  bool watched_ GUARDED_BY(mutex_) = false;         // take_all() will be called.
  std::vector<Parcel> parcels_ GUARDED_BY(mutex_);  // Each of one context.
  std::vector<Parcel> commits_ GUARDED_BY(mutex_);
  std::atomic<bool> has_commits_{false};  // So that calls need not take the lock.
};

}  // namespace farad::autograd
