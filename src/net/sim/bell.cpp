#include "net/sim/bell.h"

namespace farad::net::sim {

SimBell::SimBell(Scheduler& scheduler, const std::string& owner)
    : driver_(scheduler.make_parker("the bell of " + owner + ", as driver")),
      resident_(scheduler.make_parker("the bell of " + owner + ", as resident")) {}

void SimBell::ring() {
  rung_ = true;
  if (vacant_) {
    resident_->unpark();
  } else {
    driver_->unpark();
  }
}

void SimBell::clear() { rung_ = false; }

void SimBell::sleep(base::TimePoint deadline) {
  if (rung_) driver_->unpark();  // The ring may have come while the place was vacant.
  driver_->park(deadline);
}

void SimBell::occupy() { vacant_ = false; }

void SimBell::vacate() {
  vacant_ = true;
  if (rung_) resident_->unpark();
}

void SimBell::sleep_resident() { resident_->park(base::never); }

void SimBell::wake_resident() { resident_->unpark(); }

}  // namespace farad::net::sim
