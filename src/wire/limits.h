#pragma once

#include <cstddef>
#include <cstdint>

namespace farad::wire {

/// What we are willing to take in from somebody else, and so what we send. Checked before memory is allocated.
struct Limits {
  uint32_t body_bytes = 256u << 20;            ///< encoded values of one message
  uint64_t payload_bytes = uint64_t{1} << 40;  ///< tensor data of one message
  uint32_t tensors = 1u << 16;                 ///< of one message
  uint32_t dims = 64;                          ///< of one tensor (libtorch itself takes no more)
  uint32_t depth = 64;                         ///< nesting of values
  uint32_t elements = 1u << 24;                ///< of one container among the values
};

}  // namespace farad::wire
