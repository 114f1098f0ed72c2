#pragma once

#include <farad/audit.h>

namespace farad::audit {

/// What is lost when processes update at once, in numbers that are exact: sums of small integers.
struct Conservation {
  uint64_t updates = 0;      ///< that each element was to be increased by one
  double mean_lost = 0;      ///< part of the increases of an element that were lost
  double worst_lost = 0;     ///< of the element that lost most
  uint64_t wrong = 0;        ///< elements that are not what the sum of all gradients makes them
  uint64_t snapshots = 0;    ///< that were taken meanwhile
  uint64_t torn = 0;         ///< of those, in which not all elements are of the version that they are said to be of
  uint64_t said_torn = 0;    ///< of those, that the model itself says were not whole
  uint64_t most_inside = 0;  ///< updates that were seen within the model at once
};

/// Runs processes that update a model of the training's shape by known integers.
Conservation conserve(const Training& training, const Options& options);

}  // namespace farad::audit
