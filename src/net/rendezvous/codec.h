#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/member.h"

namespace farad::net::meeting {

/// What members tell each other when they meet, as msgpack; docs/design/rendezvous.md is the spec. Decoding takes
/// hostile bytes: Protocol for anything that is not exactly one well-formed value of ours.

inline constexpr size_t ask_bytes = 64 << 10;     ///< most that a newcomer may say of itself
inline constexpr size_t answer_bytes = 64 << 20;  ///< most that a host may say of all

/// A newcomer to the host of a tcp:// meeting.
struct Ask {
  Member self = {};
  int size = 0;
  int64_t patience_ms = -1;  // How long it will wait for an answer; negative: for ever.
};

/// The host to a newcomer: Seated at once, then one of the others.
struct Answer {
  enum class Kind : uint8_t { Seated, Complete, Refused };
  Kind kind = Kind::Refused;
  std::string host = {};             // Seated: the name of rank 0.
  std::vector<Member> members = {};  // Complete: by rank.
  bool rejoined = false;             // Complete
  base::Status status = {};          // Refused
};

/// One entry in the file of a file:// meeting.
struct Note {
  enum class Kind : uint8_t { Came, Sealed, Spoilt };
  Kind kind = Kind::Came;
  Member member = {};        // Came
  int size = 0;              // Came
  base::Status status = {};  // Spoilt
};

std::string encode(const Ask&);
std::string encode(const Answer&);
std::string encode(const Note&);
base::Status decode(std::string_view bytes, Ask& out);
base::Status decode(std::string_view bytes, Answer& out);
base::Status decode(std::string_view bytes, Note& out);

}  // namespace farad::net::meeting
