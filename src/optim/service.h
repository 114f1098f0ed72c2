#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "autograd/service.h"
#include "base/ids.h"
#include "optim/ledger.h"
#include "optim/locks.h"

namespace farad::optim {

/// What the optimizers that touch parameters of one worker have in common. Any thread.
class Service {
 public:
  Service(autograd::Service& gradients, base::Rank self, uint64_t birth, Ledger::Services services);

  /// A number for an optimizer of this worker, unique in the group.
  uint64_t new_optimizer();

  autograd::Service& gradients() { return gradients_; }
  Ledger& ledger() { return ledger_; }
  ParameterLocks& locks() { return locks_; }
  void later(std::function<void()> task) { later_(std::move(task)); }

  /// The worker ends.
  void close() { ledger_.close(); }
  /// It has ended, and its agent is still there: whoever waited for parameters goes before that does.
  void forget() { locks_.close(); }
  /// On the driving thread.
  void on_lost(base::Rank peer) { ledger_.on_lost(peer.value); }

 private:
  autograd::Service& gradients_;
  const base::Rank self_;
  const std::function<void(std::function<void()>)> later_;
  std::atomic<uint64_t> next_;
  ParameterLocks locks_;
  Ledger ledger_;
};

}  // namespace farad::optim
