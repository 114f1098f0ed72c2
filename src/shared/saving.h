#pragma once

#include <farad/detail/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "shared/layout.h"

namespace farad::shared {

/// All that the training of a model has come to, aside from its segment.
struct Image {
  std::vector<char> values;  ///< as they lie in a segment
  uint64_t version = 0;
  double rate = 0;
};

/// Writes a checkpoint as optim/checkpoint.h has them, with "value.<name>" of each parameter and buffer,
/// "state.<name>.<what>" and "steps.<name>" of what the optimizer remembers, "average.<name>" and "version".
base::Status save_image(const std::string& directory, const Layout& layout, const detail::OptimizerSettings& settings,
                        Image& image);
/// Invalid, naming what differs, if it is not of such a model.
base::Status load_image(const std::string& directory, const Layout& layout, const detail::OptimizerSettings& settings,
                        Image& image);

}  // namespace farad::shared
