#include "acer/shared_parameters.h"

#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>

#include <cmath>

#include "acer/agent.h"
#include "acer/board.h"
#include "acer/stream.h"

namespace farad::acer {
namespace {

shared::Model create(const std::string& name, Module& network, const Settings& settings) {
  shared::Options options;
  options.policy = settings.policy;
  // As long as updates of others may take that this process waits for, or that are in their way.
  options.patience = std::chrono::minutes(1);
  // An average of copies stands for several updates of each.
  const int updates = options.policy == shared::Policy::Averaged ? options.average_every : 1;
  options.moving_average = std::pow(settings.averaging, updates);
  options.members = settings.workers;
  return shared::Model::create(name, network, optimizer_of(settings), options);
}

}  // namespace

detail::OptimizerSettings optimizer_of(const Settings& settings) {
  if (settings.optimizer == Optimizer::Adam)
    return detail::settings_of(torch::optim::AdamOptions(settings.learning_rate));
  return detail::settings_of(torch::optim::RMSpropOptions(settings.learning_rate).alpha(0.99).eps(1e-5));
}

SharedModel::SharedModel(const std::string& name, const NetworkShape& shape, const Settings& settings)
    : network(make_network(shape, random_of(settings, Stream::Network))), model(create(name, *network, settings)) {}

std::vector<at::Tensor> gradients_of(const Module& network) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : network.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

size_t bytes_of(const Module& network) {
  size_t bytes = 0;
  for (const auto& parameter : network.parameters()) bytes += parameter.nbytes();
  return bytes;
}

void SharedParameters::pull(Module& network, Module& average) {
  average_read_ = shared_.model.pull_average(average);
  if (shared_.model.policy() != shared::Policy::Averaged) {
    shared_.model.pull(network);  // Last: this is the version that the gradients are of.
    return;
  }
  // Nobody else changes the copy of this process.
  const c10::NoGradGuard no_grad;
  const auto from = shared_.network->parameters(), to = network.parameters();
  for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
}

shared::Update SharedParameters::step(const Module& network, int64_t samples) {
  const auto update = step_with_others(gradients_of(network), static_cast<double>(samples));
  if (log_) {
    put(*log_, Scheduled{update.version_read, average_read_, update.version});
    log_->flush();
  }
  return update;
}

shared::Update SharedParameters::step_with_others(const std::vector<at::Tensor>& gradients, double samples) {
  // In step with others, one that is killed fails the round for all, and the next one is without it.
  for (int left = Board::most_workers;; --left) {
    try {
      return shared_.model.step(gradients, samples);
    } catch (const PeerLost&) {
      if (left == 0) throw;
    }
  }
}

}  // namespace farad::acer
