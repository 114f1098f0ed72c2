#pragma once

#include <string>

#include "autograd/rerun.h"
#include "base/status.h"

namespace farad::autograd {

/// What every worker of a pass must know of how it was called.
struct PassOptions {
  bool create_graph = false;
  bool retain_graph = false;
  bool deterministic = false;
  bool accumulate = true;  ///< leaves keep their gradients; at the root, `inputs` may say otherwise
  bool anomaly = false;    ///< look for NaN, and tell where a failing node was made
  RerunId rerun = {};      ///< what the pass goes over, and nothing else
};

std::string encode(const PassOptions& options);
base::Status decode(const std::string& bytes, PassOptions& options);

}  // namespace farad::autograd
