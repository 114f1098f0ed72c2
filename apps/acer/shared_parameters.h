#pragma once

#include <memory>
#include <ostream>
#include <string>

#include "acer/parameters.h"
#include "acer/settings.h"

namespace farad::acer {

/// The optimizer that the settings name.
detail::OptimizerSettings optimizer_of(const Settings& settings);

/// What all processes of a training share: the policy, its optimizer and the average policy. Made before they are
/// forked; each of them then is a worker of its own.
struct SharedModel {
  SharedModel(const std::string& name, const NetworkShape& shape, const Settings& settings);

  std::shared_ptr<Module> network;  ///< bound to the segment or, where each process has a copy of its own, to that
  shared::Model model;
};

/// What one update was computed from and what it made, as it stands in a worker's log.
struct Scheduled {
  uint64_t version_read = 0, average_read = 0, version = 0;
};

/// The gradients of a network's parameters, in their order.
std::vector<at::Tensor> gradients_of(const Module& network);

/// Of all its parameters.
size_t bytes_of(const Module& network);

/// That as an actor-learner sees it.
class SharedParameters final : public Parameters {
 public:
  /// Each update is written to the log, if there is one, as soon as it was made.
  explicit SharedParameters(SharedModel& shared, std::ostream* log = nullptr) : shared_(shared), log_(log) {}

  void pull(Module& network, Module& average) override;
  shared::Update step(const Module& network, int64_t samples) override;

 private:
  shared::Update step_with_others(const std::vector<at::Tensor>& gradients, double samples);

  SharedModel& shared_;
  std::ostream* const log_;
  uint64_t average_read_ = 0;
};

}  // namespace farad::acer
