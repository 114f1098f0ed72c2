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

/// The name under which others reach a worker that listens on `bound`: itself, or, if that means "everywhere", the
/// address of the first network interface that is up and is not loopback.
std::string reachable_host(const std::string& bound);

}  // namespace farad::net::tcp
