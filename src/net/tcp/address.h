#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace farad::net::tcp {

/// "10.0.0.3:4711" or "[fd00::1]:4711".
struct Address {
  std::string host;
  uint16_t port = 0;

  static base::Status parse(const std::string& text, Address& out);
  std::string text() const;
};

bool is_v6(const std::string& numeric_host);

/// The address of this machine that its packets to `host` come from: under that one, whoever can be reached by way of
/// `host` reaches us. Empty if there is no telling: the name is not known, there is no route, or the address means
/// somebody else on other machines (loopback) or other links (fe80::). Looks the name up; sends nothing to it.
std::string address_toward(const std::string& host);

/// The name under which others reach a worker that listens on `bound`: itself, or, if that means "everywhere",
/// `toward_others` (see address_toward), or, if that is empty or of the other family, the address of the first network
/// interface that is up and is not loopback.
std::string reachable_host(const std::string& bound, const std::string& toward_others);

}  // namespace farad::net::tcp
