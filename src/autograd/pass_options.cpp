#include "autograd/pass_options.h"

#include <string>

namespace farad::autograd {

std::vector<char> encode(const PassOptions& options) {
  return {static_cast<char>(options.create_graph | options.retain_graph << 1 | options.deterministic << 2 |
                            options.accumulate << 3 | options.anomaly << 4)};
}

base::Status decode(const std::vector<char>& bytes, PassOptions& options) {
  if (bytes.size() != 1 || (bytes[0] & ~0x1f)) {
    return {base::Code::Protocol,
            "[autograd] options of a pass that are none, of " + std::to_string(bytes.size()) + " bytes"};
  }
  options = {(bytes[0] & 1) != 0, (bytes[0] & 2) != 0, (bytes[0] & 4) != 0, (bytes[0] & 8) != 0, (bytes[0] & 16) != 0};
  return {};
}

}  // namespace farad::autograd
