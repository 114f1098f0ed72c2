#pragma once

#include <string>

#include "acer/parameters.h"
#include "acer/settings.h"

namespace farad::acer {

/// What all processes of a training share: the policy, its optimizer and the average policy. Made before they are
/// forked; each of them then is a worker of its own.
struct SharedModel {
  SharedModel(const std::string& name, const NetworkShape& shape, const Settings& settings);

  Network network;  ///< bound to the segment
  shared::Model model;
};

/// That as an actor-learner sees it.
class SharedParameters final : public Parameters {
 public:
  explicit SharedParameters(SharedModel& shared) : model_(shared.model) {}

  uint64_t pull(NetworkImpl& network, NetworkImpl& average) override;
  shared::Update step(const NetworkImpl& network) override;

 private:
  shared::Model& model_;
};

}  // namespace farad::acer
