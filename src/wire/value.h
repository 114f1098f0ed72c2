#pragma once

#include <farad/detail/codec.h>

#include "base/status.h"
#include "wire/limits.h"
#include "wire/message.h"

namespace farad::wire {

inline detail::ValueLimits value_limits(const Limits& limits) { return {limits.depth, limits.elements}; }

inline detail::Writer writer(Message& message, const Limits& limits = {}) {
  return {message.body, message.tensors, value_limits(limits)};
}
/// Refers to the message.
inline detail::Reader reader(const Message& message, const Limits& limits = {}) {
  return {message.body, message.tensors, value_limits(limits)};
}

/// Appends a value to the message. Throws farad::Error if it is beyond the limits.
template <detail::Travels T>
void encode(const T& value, Message& message, const Limits& limits = {}) {
  auto out = writer(message, limits);
  detail::write(out, value);
}

/// Protocol if the message is anything but one T; `value` may then be half read.
template <detail::Travels T>
base::Status decode(const Message& message, T& value, const Limits& limits = {}) {
  auto in = reader(message, limits);
  if (detail::read(in, value) && in.finish()) return {};
  return {base::Code::Protocol, "[wire] message kind " + std::to_string(message.kind) + ": " + in.error()};
}

/// The same for those who wait: throws farad::Error.
template <detail::Travels T>
T decode(const Message& message, const Limits& limits = {}) {
  T value{};
  decode(message, value, limits).raise();
  return value;
}

}  // namespace farad::wire
