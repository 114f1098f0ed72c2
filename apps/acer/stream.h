#pragma once

#include <farad/error.h>

#include <cstdint>
#include <istream>
#include <ostream>
#include <type_traits>
#include <vector>

/// Plain values as bytes, for files that the same program on the same machine reads again.
namespace farad::acer {

template <class T>
  requires std::is_trivially_copyable_v<T>
void put(std::ostream& out, const T& value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
  requires std::is_trivially_copyable_v<T>
void put(std::ostream& out, const std::vector<T>& values) {
  put(out, static_cast<uint64_t>(values.size()));
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

template <class T>
  requires std::is_trivially_copyable_v<T>
T take(std::istream& in) {
  T value{};
  if (!in.read(reinterpret_cast<char*>(&value), sizeof value)) throw Error("[acer] a checkpoint ends too early");
  return value;
}

/// Into a vector of the size that was written.
template <class T>
  requires std::is_trivially_copyable_v<T>
void take_into(std::istream& in, std::vector<T>& values) {
  const auto size = take<uint64_t>(in);
  if (size != values.size()) {
    throw Error("[acer] a checkpoint has " + std::to_string(size) + " values where there are " +
                std::to_string(values.size()) + "; was it made with other settings?");
  }
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(size * sizeof(T)));
  if (!in) throw Error("[acer] a checkpoint ends too early");
}

}  // namespace farad::acer
