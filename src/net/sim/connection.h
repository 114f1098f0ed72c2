#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "net/bell.h"
#include "net/sim/scheduler.h"
#include "net/transport.h"

namespace farad::net::sim {

struct Connection;
using Frame = std::shared_ptr<const std::vector<char>>;

/// What an endpoint finds when it polls: a frame of a connection, or, without one, the connection's end.
struct Arrival {
  std::shared_ptr<Connection> connection;
  int side = 0;  // which of its ends this is
  Frame frame;
  base::Status why;
};

/// One worker's place in the network, for one life of that worker.
struct Endpoint {
  base::Rank rank;
  uint64_t serial = 0;  // Its address: a restarted worker has another one.
  Process process{};
  size_t queue_bytes = 0;
  base::Duration lost_after{};

  Bell* bell = nullptr;   // Null once it is closed or dead.
  bool vanished = false;  // Died without anybody to tell of it.
  bool room = false;      // A queue that was full has room again.
  std::deque<Arrival> inbox;
  std::map<base::Rank, std::shared_ptr<Connection>> connections;  // the current one to each peer
  std::map<base::Rank, uint64_t> lives;                           // incarnations so far

  bool open() const { return bell != nullptr; }
};

/// A connection between two endpoints. Each end is over by itself: one side may know before the other.
struct Connection {
  struct End {
    Endpoint* at = nullptr;
    base::Incarnation incarnation{};  // 0 until this side has heard of the connection.
    bool over = false;
    bool named = false;    // The layer above knows of this incarnation.
    bool refused = false;  // A send was told Busy.
    uint64_t queued = 0;   // Bytes sent from this end that the other has not taken in yet.
    base::TimePoint last_arrival{};
    std::vector<Frame> held;  // Sent from this end, waiting for a cut to heal.
    bool end_held = false;    // News of this end's being over, waiting likewise.
    std::optional<base::TimePoint> silent_since;
  };

  uint64_t id = 0;
  End ends[2];

  int side_of(const Endpoint& endpoint) const { return ends[0].at == &endpoint ? 0 : 1; }
  End& end_of(const Endpoint& endpoint) { return ends[side_of(endpoint)]; }
  base::Rank peer_of(int side) const { return ends[1 - side].at->rank; }
};

}  // namespace farad::net::sim
