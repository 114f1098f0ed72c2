#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "net/sim/connection.h"
#include "net/sim/faults.h"
#include "net/sim/scheduler.h"

namespace farad::net::sim {

/// The cables between simulated workers: connections, and what befalls them. Carries frames it does not look into.
///
/// There are no heartbeat messages; silence is what matters and it is computed: an end that cannot hear its peer
/// (stopped, vanished, cut off) finds so once its lost_after has passed, and up to a quarter of it later, as a real one
/// on a busy machine would. So an idle world has no events, and a deadlock in it can be told.
///
/// Called by simulated threads and events only.
class Network {
 public:
  Network(Scheduler&, const Faults&);
  ~Network();

  /// From now on the worker of that rank is here, until close().
  Endpoint& open(base::Rank, Process, Bell&, size_t queue_bytes, base::Duration lost_after);
  /// The endpoint hears nothing more; its peers hear of the end.
  void close(Endpoint&);
  /// Null if there never was such an endpoint.
  Endpoint* find(uint64_t serial);

  /// Busy if the queue to `to` is over its limit.
  base::Status may_send(Endpoint& from, base::Rank to);
  base::Incarnation send(Endpoint& from, Endpoint& to, Frame);
  /// The end `by` has taken a frame in: there is room again at the sender.
  void taken(Connection&, int by, size_t bytes);
  /// This end gives the connection up; the other hears of it.
  void finish(const std::shared_ptr<Connection>&, int side, const base::Status& why);

  /// The endpoint of that rank, if it has one in this process, is gone.
  void crash(base::Rank, Process, Death);
  void break_connection(base::Rank, base::Rank);
  void slow_down(base::Rank, base::Rank, double factor);
  /// Nothing passes between the two sets until heal() with the returned number.
  uint64_t cut(std::set<base::Rank> here, std::set<base::Rank> there);
  void heal(uint64_t cut);
  /// To be called after a process was stopped or resumed.
  void reconsider_silence();

 private:
  struct Cut {
    std::set<base::Rank> here, there;
  };

  std::shared_ptr<Connection> connect(Endpoint& from, Endpoint& to);
  void accept(const std::shared_ptr<Connection>&, int side);
  void arrive(const std::shared_ptr<Connection>&, int from_side, const Frame&);
  void hear_of_end(const std::shared_ptr<Connection>&, int side);
  void tell_of_end(const std::shared_ptr<Connection>&, int over_side);
  bool is_cut(const Connection&) const;
  bool hears(const Connection&, int side) const;
  void watch_silence(const std::shared_ptr<Connection>&);
  base::TimePoint arrival_time(Connection&, int from_side, size_t bytes);
  base::Duration delay(const Connection&);

  Scheduler& scheduler_;
  const Faults faults_;
  std::map<uint64_t, std::unique_ptr<Endpoint>> endpoints_;  // by serial, dead ones too
  std::map<base::Rank, Endpoint*> latest_;
  std::map<uint64_t, std::shared_ptr<Connection>> connections_;  // by id, while an end is not over
  std::map<uint64_t, Cut> cuts_;
  std::map<std::pair<base::Rank, base::Rank>, double> slowness_;
  uint64_t next_ = 1;
};

}  // namespace farad::net::sim
