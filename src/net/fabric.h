#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <farad/options.h>

#include "base/environment.h"
#include "base/log.h"
#include "base/runtime.h"
#include "net/driver.h"
#include "net/member.h"
#include "net/transport.h"
#include "net/trust/secret.h"
#include "wire/limits.h"

namespace farad::net {

namespace sim {
class World;
}

struct FabricOptions {
  std::string name;  ///< "worker<rank>" when empty
  int rank = -1;
  int size = -1;
  std::string rendezvous;  ///< "tcp://host:port", "file:///path", "local://name"
  std::string transport;   ///< "" picks for each peer: local in one process, shm on one machine, else tcp
  std::chrono::milliseconds join_timeout{120'000};
  std::chrono::milliseconds lost_after{3'000};  ///< 0 = never
  Secret secret;                                ///< empty: loopback only
  std::string bind;                             ///< where tcp listens, and what it announces; empty: see TcpOptions
  wire::Limits limits;
  size_t queue_bytes = size_t{64} << 20;  ///< per peer; a sender beyond it waits
  size_t pool_bytes = size_t{1} << 30;    ///< most that idle receive buffers may hold, and that is lent through shm
  std::chrono::microseconds spin{50};     ///< see SystemBell
  base::Level log_level = base::Level::Warning;
  sim::World* world = nullptr;  ///< needed by transport "sim", which also brings the runtime

  /// What a worker's options and the variables of `environment` say. Throws Error if one of them is malformed, or the
  /// file of the secret cannot be read or is open to others.
  static FabricOptions from(const WorkerOptions& options, const base::Environment& environment);
};

/// A worker's place in the group: knows the members, moves messages to and from them by the best transport for each.
/// A message to oneself is handed over as a value, like any other; its incarnation is 0 and never lost.
class Fabric {
 public:
  /// Returns when all members have joined. Throws Timeout naming who is missing, or Error saying which worker is wrong
  /// and why. `sink` must outlive the Fabric, and hears nothing before start().
  static std::unique_ptr<Fabric> join(FabricOptions options, Sink& sink);
  /// Leaves at once, if close() was not called.
  virtual ~Fabric() = default;

  /// From now on messages are taken in and the sink hears of them. Once, before any send.
  virtual void start() = 0;

  virtual const Member& self() const = 0;
  virtual int size() const = 0;
  virtual std::vector<Member> members() const = 0;  ///< by rank; a restarted member's record is the new one

  /// Any thread but the driver's inside a handler. Waits while the queue to that peer is full, driving meanwhile.
  /// Throws Closed, Timeout, or Error for a rank that is none, or a message that is over the limits or cannot travel;
  /// then nothing was sent.
  virtual base::Incarnation send(base::Rank to, wire::Message message, base::TimePoint deadline = base::never) = 0;
  /// Any thread, never waits, never Busy: for answers, whose number is bounded by what was asked.
  virtual Sent post(base::Rank to, wire::Message message) = 0;

  virtual Driver& driver() = 0;
  virtual base::Runtime& runtime() = 0;
  /// "shm", "tcp", ... for that peer; "self" for ourselves.
  virtual std::string_view transport_to(base::Rank peer) const = 0;

  /// Peers see PeerLost; nothing is heard any more once it returned, and sends throw Closed. Not from a handler; twice
  /// is fine.
  virtual void close() = 0;
};

}  // namespace farad::net
