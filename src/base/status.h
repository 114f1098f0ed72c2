#pragma once

#include <exception>
#include <string>
#include <utility>

namespace farad::base {

/// The kinds of failure, one for each exception of <farad/error.h> and a few that only mean something inside.
enum class Code {
  Ok,
  Invalid,   ///< the caller's mistake: farad::Error
  Protocol,  ///< bytes that are not ours, or beyond the limits: farad::Error
  Denied,    ///< whoever it was could not prove to belong to the group: farad::Error
  Busy,      ///< the queue to that peer is full; try again when there is room: farad::Error
  PeerLost,
  Timeout,
  RemoteError,
  Aborted,
  Cancelled,
  Closed,
};

/// What the world did to us. Inside farad failures are values; they become exceptions where somebody waits.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::Ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  /// Throws the exception that belongs to the code; returns if ok().
  void raise() const;
  /// The same as a value, for a promise. Must not be called on an ok() status.
  std::exception_ptr exception() const;

 private:
  Code code_ = Code::Ok;
  std::string message_;
};

/// "PeerLost", "Timeout", ... for logs and for the wire.
const char* to_string(Code);

/// The reverse of Status::exception: any exception as a Status. Foreign ones become RemoteError-free `Invalid`.
Status status_of(std::exception_ptr);

}  // namespace farad::base
