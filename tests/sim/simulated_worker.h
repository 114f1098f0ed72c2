#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "net/driver.h"
#include "net/sim/bell.h"
#include "net/sim/transport.h"
#include "net/sim/world.h"
#include "suites/recorder.h"

namespace farad::test {

/// The least that takes part in a simulated world: a transport, somebody who drives it, and ears.
class SimulatedWorker {
 public:
  SimulatedWorker(net::sim::World& world, base::Rank rank,
                  std::chrono::milliseconds lost_after = std::chrono::milliseconds(300))
      : world_(world),
        bell_(world.scheduler(), "worker" + std::to_string(rank.value)),
        transport_(rank, world, bell_, heard_, {}, size_t{1} << 20, lost_after),
        driver_(world.runtime(), bell_, [this] { return transport_.poll(); }) {
    driver_.start();
  }

  std::string address() const { return transport_.address(); }
  void meet(base::Rank peer, const std::string& address) { transport_.set_address(peer, address); }
  void meet(base::Rank peer, const SimulatedWorker& other) { meet(peer, other.address()); }

  net::Sent send(base::Rank to, uint64_t tag) {
    wire::Message message;
    message.tag = tag;
    return transport_.send(to, message, false);
  }

  bool wait_until(std::function<bool(const Recorder&)> done) {
    return heard_.wait_until(driver_, world_.runtime(), std::move(done));
  }
  /// Lets that much time pass.
  void idle(std::chrono::nanoseconds span) { world_.runtime().make_parker()->park(world_.runtime().now() + span); }
  const Recorder& heard() const { return heard_; }
  Recorder& heard() { return heard_; }

 private:
  net::sim::World& world_;
  net::sim::SimBell bell_;
  Recorder heard_;
  net::sim::SimTransport transport_;
  net::Driver driver_;
};

}  // namespace farad::test
