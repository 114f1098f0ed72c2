#include "acer/shared_parameters.h"

#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>

namespace farad::acer {
namespace {

shared::Model create(const std::string& name, Network& network, const Settings& settings) {
  shared::Options options;
  options.policy = settings.policy;
  options.moving_average = settings.averaging;
  if (settings.optimizer == Optimizer::Adam)
    return shared::Model::create(name, network, torch::optim::AdamOptions(settings.learning_rate), options);
  const auto rmsprop = torch::optim::RMSpropOptions(settings.learning_rate).alpha(0.99).eps(1e-5);
  return shared::Model::create(name, network, rmsprop, options);
}

}  // namespace

SharedModel::SharedModel(const std::string& name, const NetworkShape& shape, const Settings& settings)
    : network(shape, random_of(settings, Stream::Network)), model(create(name, network, settings)) {}

uint64_t SharedParameters::pull(NetworkImpl& network, NetworkImpl& average) {
  model_.pull_average(average);
  return model_.pull(network);  // Last: this is the version that the gradients are of.
}

shared::Update SharedParameters::step(const NetworkImpl& network) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : network.parameters()) gradients.push_back(parameter.grad());
  return model_.step(std::move(gradients));
}

}  // namespace farad::acer
