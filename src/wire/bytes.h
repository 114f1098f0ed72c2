#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace farad::wire {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian, and so far so are its hosts");

/// Writes a number at `to`, aligned or not; returns the place behind it.
template <class T>
char* put(char* to, T value) {
  std::memcpy(to, &value, sizeof value);
  return to + sizeof value;
}

/// Reads a number at `from` and moves `from` behind it. The caller has checked that it is there.
template <class T>
T take(const char*& from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  from += sizeof value;
  return value;
}

}  // namespace farad::wire
