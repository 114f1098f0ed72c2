#pragma once

#include <farad/shared.h>

#include "acer/module.h"

namespace farad::acer {

/// Where an actor-learner gets its parameters from and takes its gradients to.
class Parameters {
 public:
  virtual ~Parameters() = default;

  /// Values of one version of the policy and of one version of its average, which may be an older one.
  virtual void pull(Module& network, Module& average) = 0;
  /// By the gradients of the network that was pulled into, which are the mean over so many samples.
  virtual shared::Update step(const Module& network, int64_t samples) = 0;
};

}  // namespace farad::acer
