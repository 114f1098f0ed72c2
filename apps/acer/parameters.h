#pragma once

#include <farad/shared.h>

#include "acer/network.h"

namespace farad::acer {

/// Where an actor-learner gets its parameters from and takes its gradients to.
class Parameters {
 public:
  virtual ~Parameters() = default;

  /// Values of one version of the policy and of one version of its average, which may be an older one.
  virtual void pull(NetworkImpl& network, NetworkImpl& average) = 0;
  /// By the gradients of the network that was pulled into, which are the mean over so many samples.
  virtual shared::Update step(const NetworkImpl& network, int64_t samples) = 0;
};

}  // namespace farad::acer
