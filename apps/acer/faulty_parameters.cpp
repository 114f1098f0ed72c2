#include "acer/faulty_parameters.h"

#include <c10/core/GradMode.h>

#include "acer/findings.h"
#include "acer/shared_parameters.h"

namespace farad::acer {
namespace {

/// Whatever they are: they are again what they were the first time.
void restore_the_first(const std::vector<at::Tensor>& values, std::vector<at::Tensor>& first) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < first.size(); ++i) values[i].copy_(first[i]);
  for (size_t i = first.size(); i < values.size(); ++i) first.push_back(values[i].clone());
}

}  // namespace

void FaultyParameters::pull(Module& network, Module& average) {
  sound_.pull(network, average);
  if (fault_ == Fault::StaleAverage) restore_the_first(average.parameters(), kept_);
}

shared::Update FaultyParameters::step(const Module& network, int64_t samples) {
  const auto gradients = gradients_of(network);
  if (fault_ == Fault::FreezeFirst) restore_the_first(gradients, kept_);
  if (fault_ == Fault::Accumulate) {
    for (size_t i = 0; i < kept_.size(); ++i) gradients[i].add_(kept_[i]);
    // Where gradients are not cleared, what is cut to a length is their sum, and the rest is added to what was cut.
    clip_gradients(network, largest_gradient_);
    kept_.clear();
    for (const auto& gradient : gradients) kept_.push_back(gradient.clone());
  }
  return sound_.step(network, samples);
}

}  // namespace farad::acer
