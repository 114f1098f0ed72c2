#include "acer/plain_network.h"

#include <algorithm>
#include <cmath>

namespace farad::acer {

template <class Scalar>
PlainNetwork<Scalar>::PlainNetwork(const NetworkShape& shape) : input_(static_cast<size_t>(shape.observation_size)) {
  int64_t width = shape.observation_size;
  for (const int64_t out : shape.hidden) {
    trunk_.push_back(layer(width, out));
    width = out;
  }
  policy_ = layer(width, shape.actions);
  q_ = layer(width, shape.actions);
}

template <class Scalar>
typename PlainNetwork<Scalar>::Layer PlainNetwork<Scalar>::layer(int64_t in, int64_t out) {
  Layer layer;
  layer.in = static_cast<size_t>(in);
  layer.out_size = static_cast<size_t>(out);
  layer.weight.resize(layer.in * layer.out_size);
  layer.bias.resize(layer.out_size);
  layer.out.resize(layer.out_size);
  return layer;
}

template <class Scalar>
void PlainNetwork<Scalar>::copy(const NetworkImpl& network) {
  for (size_t i = 0; i < trunk_.size(); ++i) copy(network.trunk()[i], trunk_[i]);
  copy(network.policy_head(), policy_);
  copy(network.q_head(), q_);
}

template <class Scalar>
void PlainNetwork<Scalar>::copy(const NetworkImpl::Layer& from, Layer& to) {
  const auto values = [&](auto* weight, const auto* bias) {
    for (size_t o = 0; o < to.out_size; ++o) {
      for (size_t i = 0; i < to.in; ++i) to.weight[i * to.out_size + o] = static_cast<Scalar>(weight[o * to.in + i]);
      to.bias[o] = static_cast<Scalar>(bias[o]);
    }
  };
  if (from.weight.scalar_type() == at::kDouble) {
    values(from.weight.data_ptr<double>(), from.bias.data_ptr<double>());
  } else {
    values(from.weight.data_ptr<float>(), from.bias.data_ptr<float>());
  }
}

template <class Scalar>
void PlainNetwork<Scalar>::Layer::compute(std::span<const Scalar> input) {
  std::copy(bias.begin(), bias.end(), out.begin());
  for (size_t i = 0; i < in; ++i) {
    const Scalar x = input[i];
    if (x == 0) continue;  // Most cells of a board are empty.
    const Scalar* row = weight.data() + i * out_size;
    for (size_t o = 0; o < out_size; ++o) out[o] += x * row[o];
  }
}

template <class Scalar>
void PlainNetwork<Scalar>::Layer::propagate(std::span<const Scalar> input, std::span<const Scalar> gradient,
                                            std::span<Scalar> down) {
  weight_gradient.resize(weight.size());
  bias_gradient.resize(bias.size());
  for (size_t o = 0; o < out_size; ++o) bias_gradient[o] += gradient[o];
  for (size_t i = 0; i < in; ++i) {
    Scalar sum = 0;
    for (size_t o = 0; o < out_size; ++o) {
      weight_gradient[i * out_size + o] += input[i] * gradient[o];
      sum += weight[i * out_size + o] * gradient[o];
    }
    if (!down.empty()) down[i] += sum;
  }
}

template <class Scalar>
void PlainNetwork<Scalar>::forward(std::span<const float> observation) {
  std::copy(observation.begin(), observation.end(), input_.begin());
  for (size_t i = 0; i < trunk_.size(); ++i) {
    trunk_[i].compute(input_of(i));
    for (auto& x : trunk_[i].out) x = std::tanh(x);
  }
  const auto top = input_of(trunk_.size());
  policy_.compute(top);
  q_.compute(top);
  auto& p = policy_.out;
  const Scalar most = *std::max_element(p.begin(), p.end());
  Scalar sum = 0;
  for (auto& x : p) sum += x = std::exp(x - most);
  for (auto& x : p) x /= sum;
}

template <class Scalar>
void PlainNetwork<Scalar>::backward(std::span<const Scalar> logits, std::span<const Scalar> q) {
  std::vector<Scalar> gradient(policy_.in, 0);
  const auto top = input_of(trunk_.size());
  policy_.propagate(top, logits, gradient);
  q_.propagate(top, q, gradient);
  for (size_t i = trunk_.size(); i-- > 0;) {
    for (size_t o = 0; o < gradient.size(); ++o) gradient[o] *= 1 - trunk_[i].out[o] * trunk_[i].out[o];
    std::vector<Scalar> down(i == 0 ? 0 : trunk_[i].in, 0);
    trunk_[i].propagate(input_of(i), gradient, down);
    gradient = std::move(down);
  }
}

template <class Scalar>
void PlainNetwork<Scalar>::clear_gradients() {
  const auto clear = [](Layer& layer) {
    layer.weight_gradient.assign(layer.weight.size(), 0);
    layer.bias_gradient.assign(layer.bias.size(), 0);
  };
  for (auto& layer : trunk_) clear(layer);
  clear(policy_);
  clear(q_);
}

template <class Scalar>
std::vector<std::vector<Scalar>> PlainNetwork<Scalar>::gradients() const {
  std::vector<std::vector<Scalar>> all;
  const auto add = [&](const Layer& layer) {
    auto& weight = all.emplace_back(layer.weight_gradient.size());
    for (size_t i = 0; i < layer.in; ++i)
      for (size_t o = 0; o < layer.out_size; ++o)
        weight[o * layer.in + i] = layer.weight_gradient[i * layer.out_size + o];
    all.push_back(layer.bias_gradient);
  };
  for (const auto& layer : trunk_) add(layer);
  add(policy_);
  add(q_);
  return all;
}

template class PlainNetwork<float>;
template class PlainNetwork<double>;

}  // namespace farad::acer
