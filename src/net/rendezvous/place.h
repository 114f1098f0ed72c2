#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace farad::net {

/// Where to meet, taken apart.
struct Place {
  enum class Kind { Tcp, File, Local };
  Kind kind = Kind::Local;
  std::string where;  // host without brackets, absolute path, or name
  uint16_t port = 0;  // tcp only
  std::string url;    // as given, for messages
};

/// Invalid says what is wrong with the text and what is accepted.
base::Status parse_place(const std::string& url, Place& out);

}  // namespace farad::net
