#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace farad {

/// Whatever goes wrong in farad is one of these. Every message begins with the layer and names the operation and the
/// peer: `[rpc] call 17 "forward" to worker3: no reply in 5 s`. Kinds are told apart by type, never by text.
class Error : public c10::Error {
 public:
  explicit Error(const std::string& message);
};

/// A peer ended, was cut off, or was silent for `lost_after`.
class PeerLost : public Error {
 public:
  using Error::Error;
};

/// Something did not happen in the time it was given.
class Timeout : public Error {
 public:
  using Error::Error;
};

/// A function failed on another worker. The message reads as the chain of calls that led there:
/// `[rpc] worker0 → worker2 "f" → worker1 "g": std::runtime_error: no such file`.
class RemoteError : public Error {
 public:
  explicit RemoteError(const std::string& message) : Error(message) {}
  /// `hops`: who called, then each callee with its function, the last being where it failed.
  RemoteError(std::vector<std::string> hops, std::string type, std::string text, std::string stack = {});

  const std::vector<std::string>& hops() const { return hops_; }
  const std::string& type() const { return type_; }  ///< of the exception there
  const std::string& text() const { return text_; }  ///< what it said
  /// Of the throw there, if FARAD_STACKS=1 was set there and the exception has one, as libtorch's and ours do.
  const std::string& stack() const { return stack_; }

 private:
  std::vector<std::string> hops_;
  std::string type_;
  std::string text_;
  std::string stack_;
};

/// A backward pass was given up, on every worker that took part in it.
class Aborted : public Error {
 public:
  using Error::Error;
};

/// Somebody asked for the work to stop.
class Cancelled : public Error {
 public:
  using Error::Error;
};

/// The worker was closed before the operation was asked for.
class Closed : public Error {
 public:
  using Error::Error;
};

}  // namespace farad
