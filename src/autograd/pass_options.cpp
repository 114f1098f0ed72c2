#include "autograd/pass_options.h"

#include "wire/bytes.h"

namespace farad::autograd {
namespace {

constexpr size_t options_size = sizeof(uint8_t) + sizeof(uint64_t);

}  // namespace

std::string encode(const PassOptions& options) {
  std::string bytes(options_size, '\0');
  char* const next = wire::put<uint8_t>(
      bytes.data(), static_cast<uint8_t>(options.create_graph | options.retain_graph << 1 | options.deterministic << 2 |
                                         options.accumulate << 3 | options.anomaly << 4));
  wire::put(next, options.rerun.value);
  return bytes;
}

base::Status decode(const std::string& bytes, PassOptions& options) {
  if (bytes.size() != options_size || (bytes[0] & ~0x1f)) {
    return {base::Code::Protocol,
            "[autograd] options of a pass that are none, of " + std::to_string(bytes.size()) + " bytes"};
  }
  const char* next = bytes.data();
  const auto flags = wire::take<uint8_t>(next);
  options = {(flags & 1) != 0, (flags & 2) != 0,  (flags & 4) != 0,
             (flags & 8) != 0, (flags & 16) != 0, RerunId(wire::take<uint64_t>(next))};
  return {};
}

}  // namespace farad::autograd
