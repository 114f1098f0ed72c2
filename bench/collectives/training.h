#pragma once

#include "common/program.h"

namespace farad::bench {

/// What is trained. PyTorch's side has the same networks, numbers and counts, in torch_data_parallel.py, so that losses
/// can be compared.
struct Network {
  const char* name;
  int steps;
  double least_ratio;  ///< how much faster than DistributedDataParallel a step has to be
};
constexpr Network networks[] = {
    {"small MLP", 400, 1.5},
    {"conv net", 60, 1},
};

/// Trains each of them with farad::DataParallel; rank 0 writes, for each, a Sample of "step" and the mean of all
/// members' last "loss" as JSON. Throws if members' parameters are not the same to the bit in the end: rendezvous,
/// transport, how many there are of us, its rank.
void train_together(const Words&);

}  // namespace farad::bench
