#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace farad::wire {

/// The number a dtype has on the wire, which is ours and never changes, whatever libtorch's enumeration does; 0 if it
/// does not travel.
uint8_t dtype_to_wire(c10::ScalarType type);

/// The dtype of a wire number; Undefined if this libtorch does not have it, or nobody does.
c10::ScalarType dtype_from_wire(uint8_t number);

/// "float8_e5m2" for a number that some libtorch knows, even if not this one; null for one that means nothing.
const char* dtype_name(uint8_t number);

}  // namespace farad::wire
