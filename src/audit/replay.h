#pragma once

#include <farad/audit.h>

#include <cstdint>
#include <vector>

#include "audit/board.h"
#include "optim/kinds.h"

namespace farad::audit {

/// The same updates in the same order by one process.
struct Replay {
  /// Flat, at each version, the first ones first. Undefined where there was no room for it: the last one and as many of
  /// the first as fit are there.
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> averages;  ///< likewise; empty if there is no moving average
  /// After one more, by the gradient that tries what the optimizer remembers; Averaged: of each copy.
  std::vector<at::Tensor> probed;
  uint64_t other_batches = 0;  ///< that are not what the worker computed from
  uint64_t other_values = 0;   ///< that the worker had read and were not those of the version, of the sample
};

/// Keeps no more than so many bytes of values, and what updates to come have read.
Replay replay(const Training& training, const Options& options, const Evidence& evidence,
              uint64_t most_bytes = most_kept_bytes);

}  // namespace farad::audit
