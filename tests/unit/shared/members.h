#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/shared.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "unit/shared/models.h"

/// What the tests of those policies have in common under which several processes make one update, or average copies.
namespace farad::shared {

using Gradients = std::vector<at::Tensor>;

/// Of a member in a round; the same each time.
inline Gradients gradients_of(int member, int round) {
  Linear module = linear();
  set_gradients(module, 1000 * member + round);
  return {module->weight.grad(), module->bias.grad()};
}

inline constexpr double samples_of[] = {3, 1, 5};

/// The gradient of the mean over all samples of these members, summed in their order.
inline Gradients mean_of(const std::vector<Gradients>& all, const std::vector<double>& samples) {
  double total = 0;
  for (const double n : samples) total += n;
  Gradients mean;
  for (size_t i = 0; i < all[0].size(); ++i) {
    mean.push_back(all[0][i] * (samples[0] / total));
    for (size_t member = 1; member < all.size(); ++member) mean[i].add_(all[member][i], samples[member] / total);
  }
  return mean;
}

/// What members do at once, each in a thread of its own with a model of its own; seats are taken in their order.
inline void together(const std::string& name, int members, const Options& options,
                     const std::function<void(int member, Model&, Linear&)>& act) {
  std::vector<Linear> modules;
  std::vector<Model> models;
  for (int i = 0; i < members; ++i) modules.push_back(linear());
  for (int i = 0; i < members; ++i) models.push_back(Model::attach(name, modules[static_cast<size_t>(i)], options));
  std::vector<std::thread> threads;
  for (int i = 0; i < members; ++i) {
    threads.emplace_back([&, i] { act(i, models[static_cast<size_t>(i)], modules[static_cast<size_t>(i)]); });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace farad::shared
