#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/runtime.h"
#include "base/status.h"
#include "net/member.h"
#include "net/trust/secret.h"

namespace farad::net {

struct JoinRequest {
  Member self;
  int size = 0;  // of the whole group
  base::TimePoint deadline = base::never;
  Secret secret;
};

/// One worker's handle to the place where the members of a group meet and learn of each other. It lives as long as the
/// worker: while it does, its rank is taken, and the host of a tcp:// meeting goes on to serve those who come again.
class Rendezvous {
 public:
  /// Closes if nobody did.
  virtual ~Rendezvous() = default;

  /// Waits until all members are known; `members` is then sorted by rank. Called once, by one thread. Fails with
  ///   Timeout  naming who is missing, or saying that the host is gone;
  ///   Invalid  for a rank or name that is taken, a rank out of range, a size others do not share: the worker that is
  ///            wrong and all who wait with it get an error that says who is wrong and why;
  ///   Denied   if this worker does not have the group's secret;
  ///   Closed   if close() was called meanwhile.
  /// Once the group is complete, a worker that was restarted (same rank and name, another birth) joins again: it gets
  /// the members of now and its record replaces the old one. Then `rejoined` is true, and telling the others of the new
  /// record is up to the caller.
  virtual base::Status join(const JoinRequest& request, std::vector<Member>& members, bool& rejoined) = 0;

  /// Gives the rank up and ends waits and the host's thread. Any thread; twice is fine.
  virtual void close() = 0;
};

/// Parses "tcp://host:port", "file:///path" or "local://name" and makes a handle to it; nothing is touched before
/// join(). Invalid says what is wrong with the text and what is accepted. `runtime` must outlive the handle.
base::Status open_rendezvous(const std::string& url, base::Rank self, base::Runtime& runtime,
                             std::unique_ptr<Rendezvous>& out);

}  // namespace farad::net
