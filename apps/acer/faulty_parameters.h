#pragma once

#include <vector>

#include "acer/parameters.h"
#include "acer/settings.h"

namespace farad::acer {

/// Sound parameters seen through a defect, so that one can look at what such a training learns. One for each worker.
class FaultyParameters final : public Parameters {
 public:
  /// With Fault::None it is as sound as they are.
  FaultyParameters(Parameters& sound, const Settings& settings)
      : sound_(sound), fault_(settings.inject), largest_gradient_(settings.rules.largest_gradient) {}

  void pull(Module& network, Module& average) override;
  shared::Update step(const Module& network, int64_t samples) override;

 private:
  Parameters& sound_;
  const Fault fault_;
  const double largest_gradient_;
  std::vector<at::Tensor> kept_;  ///< from one update to the next, where that is the defect
};

}  // namespace farad::acer
