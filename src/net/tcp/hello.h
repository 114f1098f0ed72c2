#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/status.h"

namespace farad::net::tcp {

/// What the two ends of a new connection tell each other after the handshake: the dialer who it is and whom it wants,
/// the other its answer. Of a fixed size.
struct Hello {
  enum class Answer : uint32_t {
    None = 0,      ///< the dialer's
    Welcome = 1,   ///< the connection is up
    Crossing = 2,  ///< my own hello to you is under way, and it is the one that counts
    Stale = 3,     ///< you have dialed anew since
    Stranger = 4,  ///< I am not the one you want
  };

  base::Rank from;
  base::Rank to;
  Answer answer = Answer::None;
  uint64_t birth = 0;    ///< of the sender's process
  uint64_t attempt = 0;  ///< grows from one dial of that process to the next
  std::string address;   ///< where the sender listens

  static constexpr size_t longest_address = 264;
  static constexpr size_t bytes = 2 + 2 + 4 + 8 + 8 + longest_address;
  using Encoded = std::array<char, bytes>;

  Encoded encode() const;
  /// Protocol if these are no such words.
  static base::Status decode(const Encoded& from, Hello& out);
};

}  // namespace farad::net::tcp
