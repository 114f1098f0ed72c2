#include "acer/layer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>

#include <cmath>

namespace farad::acer {

Layer add_layer(Module& to, const std::string& name, int64_t in, int64_t out, double scale, Random& random,
                bool with_bias) {
  const double limit = scale / std::sqrt(static_cast<double>(in));
  const auto filled = [&](at::IntArrayRef sizes) {
    auto tensor = at::empty(sizes);
    auto* values = tensor.data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = static_cast<float>(random.uniform(-limit, limit));
    return tensor;
  };
  const auto weight = to.add_parameter(name + "_weight", filled({out, in}));
  return {weight, with_bias ? to.add_parameter(name + "_bias", filled({out})) : at::Tensor()};
}

std::vector<Layer> add_trunk(Module& to, int64_t observation_size, const std::vector<int64_t>& hidden, Random& random) {
  std::vector<Layer> trunk;
  int64_t width = observation_size;
  for (const int64_t out : hidden) {
    trunk.push_back(add_layer(to, "trunk" + std::to_string(trunk.size()), width, out, 1, random));
    width = out;
  }
  return trunk;
}

at::Tensor forward(const std::vector<Layer>& trunk, const at::Tensor& observations) {
  auto x = observations;
  for (const auto& [weight, bias] : trunk) x = at::tanh(at::linear(x, weight, bias));
  return x;
}

}  // namespace farad::acer
