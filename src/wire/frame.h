#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "wire/limits.h"

/// The fixed parts of a frame; docs/design/wire_format.md is the specification.
namespace farad::wire::frame {

inline constexpr uint32_t magic = 0x44524146;  // "FARD"
inline constexpr uint8_t version = 1;
inline constexpr size_t header_bytes = 32;
inline constexpr size_t trailer_bytes = 4;

/// The longest table that tensors within the limits can make; see TensorSpec.
inline uint64_t table_limit(const Limits& limits) {
  return uint64_t{limits.tensors} * (17 + 16 * uint64_t{limits.dims});
}

struct Header {
  uint8_t kind = 0;
  uint32_t table_bytes = 0;
  uint32_t body_bytes = 0;
  uint64_t payload_bytes = 0;
  uint64_t tag = 0;
};

/// Follows the payload, if there is one: whether the tensors in it are as they were when they were sent.
enum class Trailer : uint32_t {
  Good = 0x444f4f47,       // "GOOD"
  TakenBack = 0x4b434142,  // "BACK"
};

void write(const Header& header, char* to);
/// Protocol, with what is wrong, unless the bytes are a header of ours and its lengths are within the limits.
base::Status read(const char* from, const Limits& limits, Header& header);

const char* bytes_of(Trailer trailer);
base::Status read(const char* from, Trailer& trailer);

}  // namespace farad::wire::frame
