#pragma once

#include <map>
#include <string>

#include "base/ids.h"

namespace farad::net {

/// What the others know of a worker; each publishes its own at rendezvous.
struct Member {
  base::Rank rank;
  std::string name;
  /// Two members with the same text can share memory: boot id, network namespace, user.
  std::string machine;
  /// Transport name -> where it listens ("tcp" -> "10.0.0.3:41234").
  std::map<std::string, std::string> addresses;
  /// Differs from one start of the process to the next, so that a restarted worker is not taken for the old one.
  uint64_t birth = 0;
  /// For `farad doctor` and error messages: "farad 0.1.0, torch 1.13.1".
  std::string version;
};

}  // namespace farad::net
