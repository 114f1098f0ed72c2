#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "net/member.h"
#include "net/transport.h"

namespace farad::net {

/// Knows the members and which transport leads to each; makes one stream of news out of those of all transports.
///
/// Each transport counts a peer's incarnations by itself; in those given to the layer above, the low bits say which
/// transport it was, so that no two are equal even if a peer comes back by another way.
class Router {
 public:
  /// `preference` picks for a member; null if none of ours leads there.
  using Choice = std::function<Transport*(const Member&)>;

  /// The sink to give to the transport with that number (see add()).
  std::unique_ptr<Sink> sink_for(size_t transport, Sink& above);
  /// In the order of their numbers, at most four.
  void add(std::unique_ptr<Transport> transport);

  /// All members, by rank. Invalid if one cannot be reached; Protocol if they are not each rank once, in order.
  base::Status set_members(std::vector<Member> members, Choice choice) EXCLUDES(mutex_);
  /// A member came back, perhaps somewhere else.
  base::Status update(const Member& member) EXCLUDES(mutex_);
  std::vector<Member> members() const EXCLUDES(mutex_);
  std::string name_of(base::Rank rank) const EXCLUDES(mutex_);
  std::string_view transport_to(base::Rank rank) const;

  Sent send(base::Rank to, wire::Message& message, bool urgent);
  bool poll();
  void close();

  std::map<std::string, std::string> addresses() const;

 private:
  class Prefixed;

  base::Status route(const Member& member) REQUIRES(mutex_);
  static base::Incarnation outward(base::Incarnation inner, size_t transport);

  // Constant once members are set.
  std::vector<std::unique_ptr<Transport>> transports_;
  Choice choice_;
  size_t size_ = 0;

  /// Which transport leads to each rank. Read by every send, so without the lock; written under it.
  std::unique_ptr<std::atomic<uint8_t>[]> routes_;

  mutable base::Mutex mutex_;
  std::vector<Member> members_ GUARDED_BY(mutex_);
};

}  // namespace farad::net
