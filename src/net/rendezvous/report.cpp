#include "net/rendezvous/report.h"

#include "net/rendezvous/roster.h"

namespace farad::net {

base::Status report(const Place& place, const Member& self, const base::Status& status) {
  if (status.ok()) return status;
  return {status.code(), "[net] rendezvous " + place.url + ", join of " + describe(self) + ": " + status.message()};
}

base::Status timed_out(const std::string& missing) {
  return {base::Code::Timeout,
          "not all came in time; missing: " + missing + ". Were they started, with this rendezvous and this secret?"};
}

base::Status wrong_secret() {
  return {base::Code::Denied, "the others have another secret; give all workers the same FARAD_SECRET"};
}

base::Status closed_meanwhile() { return {base::Code::Closed, "the worker was closed meanwhile"}; }

}  // namespace farad::net
