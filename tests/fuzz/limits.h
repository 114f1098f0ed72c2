#pragma once

#include "wire/limits.h"

namespace farad::fuzz {

/// Small enough that a fuzzer reaches them, and that no input takes long.
inline wire::Limits small_limits() {
  wire::Limits limits;
  limits.body_bytes = 1 << 16;
  limits.payload_bytes = 1 << 16;
  limits.tensors = 64;
  limits.elements = 1 << 12;
  limits.depth = 16;
  return limits;
}

}  // namespace farad::fuzz
