#include "base/status.h"

#include <farad/error.h>

namespace farad {

// c10::Error's other constructors differ between the libtorch versions we build on; this one is in all of them.
Error::Error(const std::string& message)
    : c10::Error(c10::SourceLocation{__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message) {}

namespace {

std::string chain_of(const std::vector<std::string>& hops) {
  std::string text;
  for (const auto& hop : hops) text += (text.empty() ? "" : " → ") + hop;
  return text;
}

}  // namespace

RemoteError::RemoteError(std::vector<std::string> hops, std::string type, std::string text, std::string stack)
    : Error("[rpc] " + chain_of(hops) + ": " + type + ": " + text + (stack.empty() ? "" : "\nthere: " + stack)),
      hops_(std::move(hops)),
      type_(std::move(type)),
      text_(std::move(text)),
      stack_(std::move(stack)) {}

namespace base {

void Status::raise() const {
  switch (code_) {
    case Code::Ok:
      return;
    case Code::Invalid:
    case Code::Protocol:
    case Code::Denied:
    case Code::Busy:
      throw Error(message_);
    case Code::PeerLost:
      throw PeerLost(message_);
    case Code::Timeout:
      throw Timeout(message_);
    case Code::RemoteError:
      throw RemoteError(message_);
    case Code::Aborted:
      throw Aborted(message_);
    case Code::Cancelled:
      throw Cancelled(message_);
    case Code::Closed:
      throw Closed(message_);
  }
  throw Error(message_);  // A code that came by message may be none.
}

std::exception_ptr Status::exception() const {
  try {
    raise();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

const char* to_string(Code code) {
  switch (code) {
    case Code::Ok:
      return "Ok";
    case Code::Invalid:
      return "Invalid";
    case Code::Protocol:
      return "Protocol";
    case Code::Denied:
      return "Denied";
    case Code::Busy:
      return "Busy";
    case Code::PeerLost:
      return "PeerLost";
    case Code::Timeout:
      return "Timeout";
    case Code::RemoteError:
      return "RemoteError";
    case Code::Aborted:
      return "Aborted";
    case Code::Cancelled:
      return "Cancelled";
    case Code::Closed:
      return "Closed";
  }
  return "Unknown";
}

Status status_of(std::exception_ptr error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& e) {
    return {Code::PeerLost, e.what_without_backtrace()};
  } catch (const Timeout& e) {
    return {Code::Timeout, e.what_without_backtrace()};
  } catch (const RemoteError& e) {
    return {Code::RemoteError, e.what_without_backtrace()};
  } catch (const Aborted& e) {
    return {Code::Aborted, e.what_without_backtrace()};
  } catch (const Cancelled& e) {
    return {Code::Cancelled, e.what_without_backtrace()};
  } catch (const Closed& e) {
    return {Code::Closed, e.what_without_backtrace()};
  } catch (const c10::Error& e) {
    return {Code::Invalid, e.what_without_backtrace()};
  } catch (const std::exception& e) {
    return {Code::Invalid, e.what()};
  } catch (...) {
    return {Code::Invalid, "an exception that is no std::exception"};
  }
}

}  // namespace base
}  // namespace farad
