#pragma once

#include <farad/detail/function.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "wire/message.h"

namespace farad::rpc {

/// The kinds of messages of this layer. The tag is the caller's number for the call.
enum class Kind : uint8_t {
  Call = 1,
  Reply = 2,
  Cancel = 3,   ///< the caller has given up
  Closing = 4,  ///< see closing.h
};

/// In front of the arguments.
struct CallHeader {
  static constexpr size_t bytes = 32;

  detail::FunctionId function;  ///< zero if called by name; then the name comes before the arguments
  uint32_t timeout_ms = 0;      ///< that the caller will wait; 0 = for ever
  bool one_way = false;         ///< no reply is wanted
  int64_t context = 0;          ///< 0 = none
};

/// What went wrong where a call ran.
struct Failure {
  base::Code code = base::Code::RemoteError;  ///< RemoteError: the function threw; others: it did not even run
  std::string type;                           ///< of the exception
  std::string text;
  std::vector<std::string> hops;  ///< beyond the callee: `worker1 "g"`, ...
};

wire::Message encode_call(uint64_t id, const CallHeader& header, const std::string& name, detail::Packet arguments);
/// `arguments` refers to the rest of the message. Protocol if this is no call.
base::Status decode_call(const wire::Message& message, CallHeader& header, std::string& name, size_t& arguments_at);

/// The body of a reply begins with this; a result follows it directly.
inline constexpr char good = 0;
inline constexpr char bad = 1;

wire::Message encode_failure(uint64_t id, const Failure& failure);
/// Of a body that begins with `bad`.
base::Status decode_failure(const wire::Message& message, Failure& failure);

}  // namespace farad::rpc
