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
  Cancel = 3,     ///< the caller has given up
  Closing = 4,    ///< see closing.h
  Reference = 5,  ///< see ref/table.h
};

/// In front of the arguments.
struct CallHeader {
  static constexpr size_t bytes = 32;

  detail::FunctionId function;  ///< zero if called by name
  uint32_t timeout_ms = 0;      ///< that the caller will wait; 0 = for ever
  bool one_way = false;         ///< no reply is wanted
  int64_t context = 0;          ///< 0 = none

  // Behind the fixed part, where there are any:
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
};

wire::Message encode_call(uint64_t id, const CallHeader& header, detail::Packet arguments);
/// The arguments begin at `arguments_at` of the body. Protocol if this is no call.
base::Status decode_call(const wire::Message& message, CallHeader& header, size_t& arguments_at);

/// The body of a reply begins with this; a result follows it directly.
inline constexpr char good = 0;
inline constexpr char bad = 1;
inline constexpr char good_with_loans = 2;  ///< loans come before the result

wire::Message encode_result(uint64_t id, const std::vector<Loan>& loans, detail::Packet result);
/// Of a body that begins with `good_with_loans`: where the result begins.
base::Status decode_loans(const wire::Message& message, std::vector<Loan>& loans, size_t& result_at);

wire::Message encode_failure(uint64_t id, const Failure& failure);
/// Of a body that begins with `bad`.
base::Status decode_failure(const wire::Message& message, Failure& failure);

}  // namespace farad::rpc
