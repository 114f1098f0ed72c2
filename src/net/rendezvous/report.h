#pragma once

#include <chrono>
#include <string>

#include "base/status.h"
#include "net/member.h"
#include "net/rendezvous/place.h"

namespace farad::net {

/// How long a meeting that failed is still held, so that workers that start a little later hear why.
inline constexpr std::chrono::milliseconds linger_after_failure{1000};
/// How long a worker with the rank and name of one that seems to be alive waits for that one's end to be noticed. The
/// kernel frees a killed process's memory before it closes its sockets, which took 180 ms for 4 GiB.
inline constexpr std::chrono::milliseconds rival_grace{2000};

/// The clause of `status` with where and who in front: the message that a user sees. Ok stays ok.
base::Status report(const Place& place, const Member& self, const base::Status& status);

base::Status timed_out(const std::string& missing);
base::Status wrong_secret();
base::Status closed_meanwhile();

}  // namespace farad::net
