#pragma once

#include <farad/detail/function.h>

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "rpc/references.h"
#include "wire/message.h"

namespace farad::rpc {

/// The kinds of messages of this layer. The tag is the caller's number for the call.
enum class Kind : uint8_t {
  Call = 1,
  Reply = 2,
  Cancel = 3,      ///< the caller has given up
  Closing = 4,     ///< see closing.h
  Reference = 5,   ///< see ref/table.h
  Above = 6,       ///< of the layer above calls: see interceptor.h
  Collective = 7,  ///< see mailbox.h
};

/// In front of the arguments.
struct CallHeader {
  static constexpr size_t bytes = 24;

  detail::FunctionId function;  ///< zero if called by name
  uint32_t timeout_ms = 0;      ///< that the caller will wait; 0 = for ever
  bool one_way = false;         ///< no reply is wanted

  // Behind the fixed part, where there are any:
  wire::Bytes note;                     ///< see interceptor.h
  std::optional<detail::RefId> makes;   ///< the result stays at the callee, as the value of this reference
  std::optional<detail::RefId> object;  ///< the function is called on this referenced value
  std::string name;                     ///< of a function called by name
  std::vector<Loan> loans;              ///< references among the arguments
};

/// What went wrong where a call ran.
struct Failure {
  base::Code code = base::Code::RemoteError;  ///< RemoteError: the function threw; others: it did not even run
  std::string type;                           ///< of the exception
  std::string text;
  std::vector<std::string> hops;  ///< beyond the callee: `worker1 "g"`, ...
  std::string stack = {};         ///< of the throw, where that is known and wanted
};

wire::Message encode_call(uint64_t id, const CallHeader& header, detail::Packet arguments);
/// The arguments begin at `arguments_at` of the body. Protocol if this is no call.
base::Status decode_call(const wire::Message& message, CallHeader& header, size_t& arguments_at);

/// In front of a result.
struct ReplyHeader {
  bool failed = false;      ///< a Failure follows instead
  wire::Bytes note;         ///< see interceptor.h
  std::vector<Loan> loans;  ///< references in the result
};

wire::Message encode_result(uint64_t id, const ReplyHeader& header, detail::Packet result);
/// The result, or the failure, begins at `result_at` of the body. Protocol if this is no reply.
base::Status decode_reply(const wire::Message& message, ReplyHeader& header, size_t& result_at);

wire::Message encode_failure(uint64_t id, const Failure& failure);
/// Of a reply that failed.
base::Status decode_failure(const wire::Message& message, size_t failure_at, Failure& failure);

}  // namespace farad::rpc
