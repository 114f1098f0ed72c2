#include "acer/shared_parameters.h"

#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>

#include "acer/agent.h"
#include "acer/board.h"
#include "acer/stream.h"

namespace farad::acer {
namespace {

shared::Model create(const std::string& name, torch::nn::Module& network, const Settings& settings) {
  shared::Options options;
  options.policy = settings.policy;
  options.moving_average = settings.averaging;
  options.members = settings.workers;
  if (settings.optimizer == Optimizer::Adam)
    return shared::Model::create(name, network, torch::optim::AdamOptions(settings.learning_rate), options);
  const auto rmsprop = torch::optim::RMSpropOptions(settings.learning_rate).alpha(0.99).eps(1e-5);
  return shared::Model::create(name, network, rmsprop, options);
}

}  // namespace

SharedModel::SharedModel(const std::string& name, const NetworkShape& shape, const Settings& settings)
    : network(make_network(shape, random_of(settings, Stream::Network))), model(create(name, *network, settings)) {}

std::vector<at::Tensor> gradients_of(const torch::nn::Module& network) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : network.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

void SharedParameters::pull(torch::nn::Module& network, torch::nn::Module& average) {
  average_read_ = model_.pull_average(average);
  model_.pull(network);  // Last: this is the version that the gradients are of.
}

shared::Update SharedParameters::step(const torch::nn::Module& network, int64_t samples) {
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
      return model_.step(gradients, samples);
    } catch (const PeerLost&) {
      if (left == 0) throw;
    }
  }
}

}  // namespace farad::acer
