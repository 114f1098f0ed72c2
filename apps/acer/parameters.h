#pragma once

#include <farad/shared.h>

#include <vector>

#include "acer/network.h"

namespace farad::acer {

/// Where an actor-learner gets its parameters from and takes its gradients to.
class Parameters {
 public:
  virtual ~Parameters() = default;

  /// The values of one version, and those of the average policy; gives the version.
  virtual uint64_t pull(NetworkImpl& network, NetworkImpl& average) = 0;
  /// By the gradients of the network that was pulled into.
  virtual shared::Update step(const NetworkImpl& network) = 0;
};

}  // namespace farad::acer
