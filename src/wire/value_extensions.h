#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// What writing and reading values have in common.
namespace farad::detail {

/// What MessagePack has no type for.
enum Extension : int8_t { tensor_extension = 1, complex_extension = 2, reference_extension = 3 };
constexpr size_t index_bytes = sizeof(uint32_t);  ///< of a tensor or a reference: its place in the message
constexpr size_t complex_bytes = 2 * sizeof(double);

inline std::string over_limit(const char* what, uint64_t count, uint64_t limit) {
  return std::string(what) + " of " + std::to_string(count) + ", the limit is " + std::to_string(limit);
}

}  // namespace farad::detail
