#pragma once

#include <farad/audit.h>

#include <vector>

#include "optim/kinds.h"

namespace farad::audit {

/// The same updates in the same order by one process.
struct Replay {
  std::vector<at::Tensor> values;    ///< flat, at each version, the first ones first
  std::vector<at::Tensor> averages;  ///< likewise; empty if there is no moving average
  at::Tensor probed;                 ///< after one more, by the gradient that tries what the optimizer remembers
  uint64_t other_batches = 0;        ///< that are not what the worker computed from
  uint64_t other_values = 0;         ///< that the worker had read and were not those of the version, of the sample
};

Replay replay(const Training& training, const Options& options, const Evidence& evidence);

}  // namespace farad::audit
