#pragma once

#include <memory>
#include <string>

#include "net/bell.h"
#include "net/sim/scheduler.h"

namespace farad::net::sim {

/// A Bell whose sleepers are simulated threads.
class SimBell final : public Bell {
 public:
  /// `owner` shows in the report of a deadlock.
  SimBell(Scheduler&, const std::string& owner);

  void ring() override;
  void clear() override;
  void sleep(base::TimePoint deadline) override;
  void occupy() override;
  void vacate() override;
  bool linger() override { return false; }
  void sleep_resident() override;
  void wake_resident() override;

 private:
  // Belongs to whoever holds the baton.
  const std::unique_ptr<base::Parker> driver_;
  const std::unique_ptr<base::Parker> resident_;
  bool vacant_ = true;
  bool rung_ = false;
};

}  // namespace farad::net::sim
