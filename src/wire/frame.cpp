#include "wire/frame.h"

#include <bit>
#include <cstdio>
#include <string>

#include "wire/bytes.h"

namespace farad::wire::frame {
namespace {

base::Status refuse(std::string why) { return {base::Code::Protocol, "[wire] refused a frame: " + std::move(why)}; }

base::Status over_limit(const char* what, uint64_t claimed, uint64_t limit) {
  return refuse(std::string(what) + " of " + std::to_string(claimed) + " bytes, the limit is " + std::to_string(limit) +
                "; raise it on both sides if such messages are meant");
}

std::string hex(uint32_t value) {
  char text[11];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

}  // namespace

void write(const Header& header, char* to) {
  to = put<uint32_t>(to, magic);
  to = put<uint8_t>(to, version);
  to = put<uint8_t>(to, header.kind);
  to = put<uint16_t>(to, 0);
  to = put<uint32_t>(to, header.table_bytes);
  to = put<uint32_t>(to, header.body_bytes);
  to = put<uint64_t>(to, header.payload_bytes);
  put<uint64_t>(to, header.tag);
}

base::Status read(const char* from, const Limits& limits, Header& header) {
  const auto begin = take<uint32_t>(from);
  if (begin != magic)
    return refuse("it begins with " + hex(begin) + " instead of " + hex(magic) + "; is the peer a farad worker?");
  const auto their_version = take<uint8_t>(from);
  if (their_version != version) {
    return refuse("its format is version " + std::to_string(their_version) + ", ours is " + std::to_string(version) +
                  "; run the same version of farad on all workers");
  }
  header.kind = take<uint8_t>(from);
  const auto flags = take<uint16_t>(from);
  if (flags != 0) return refuse("flags " + hex(flags) + " mean nothing in version " + std::to_string(version));
  header.table_bytes = take<uint32_t>(from);
  header.body_bytes = take<uint32_t>(from);
  header.payload_bytes = take<uint64_t>(from);
  header.tag = take<uint64_t>(from);

  if (header.table_bytes > table_limit(limits))
    return over_limit("a tensor table", header.table_bytes, table_limit(limits));
  if (header.body_bytes > limits.body_bytes) return over_limit("a body", header.body_bytes, limits.body_bytes);
  if (header.payload_bytes > limits.payload_bytes) {
    return over_limit("tensor data", header.payload_bytes, limits.payload_bytes);
  }
  if (header.payload_bytes > 0 && header.table_bytes == 0) {
    return refuse(std::to_string(header.payload_bytes) + " bytes of tensor data, but no tensors");
  }
  return {};
}

const char* bytes_of(Trailer trailer) { return trailer == Trailer::Good ? "GOOD" : "BACK"; }

base::Status read(const char* from, Trailer& trailer) {
  const auto value = take<uint32_t>(from);
  if (value != static_cast<uint32_t>(Trailer::Good) && value != static_cast<uint32_t>(Trailer::TakenBack)) {
    return refuse("it ends with " + hex(value) + ", which is no trailer");
  }
  trailer = static_cast<Trailer>(value);
  return {};
}

}  // namespace farad::wire::frame
