#include "acer/plain_layer.h"

#include <algorithm>
#include <cmath>

namespace farad::acer {

template <class Scalar>
PlainLayer<Scalar>::PlainLayer(int64_t in, int64_t out)
    : in_(static_cast<size_t>(in)),
      weight_(static_cast<size_t>(in * out)),
      bias_(static_cast<size_t>(out)),
      out_(static_cast<size_t>(out)) {}

template <class Scalar>
void PlainLayer<Scalar>::copy(const Layer& from) {
  has_bias_ = from.bias.defined();
  const auto values = [&](const auto* weight, const auto* bias) {
    for (size_t o = 0; o < out_.size(); ++o) {
      for (size_t i = 0; i < in_; ++i) weight_[i * out_.size() + o] = static_cast<Scalar>(weight[o * in_ + i]);
      bias_[o] = bias ? static_cast<Scalar>(bias[o]) : 0;
    }
  };
  const auto copy_of = [&]<class From>(From) {
    values(from.weight.data_ptr<From>(), has_bias_ ? from.bias.data_ptr<From>() : nullptr);
  };
  from.weight.scalar_type() == at::kDouble ? copy_of(double()) : copy_of(float());
}

template <class Scalar>
std::span<Scalar> PlainLayer<Scalar>::forward(std::span<const Scalar> input) {
  std::copy(bias_.begin(), bias_.end(), out_.begin());
  for (size_t i = 0; i < in_; ++i) {
    const Scalar x = input[i];
    if (x == 0) continue;  // Most cells of a board are empty.
    const Scalar* row = weight_.data() + i * out_.size();
    for (size_t o = 0; o < out_.size(); ++o) out_[o] += x * row[o];
  }
  return out_;
}

template <class Scalar>
void PlainLayer<Scalar>::backward(std::span<const Scalar> input, std::span<const Scalar> gradient,
                                  std::span<Scalar> down) {
  const size_t width = out_.size();
  weight_gradient_.resize(weight_.size());
  bias_gradient_.resize(bias_.size());
  for (size_t o = 0; o < width; ++o) bias_gradient_[o] += gradient[o];
  for (size_t i = 0; i < in_; ++i) {
    Scalar sum = 0;
    for (size_t o = 0; o < width; ++o) {
      weight_gradient_[i * width + o] += input[i] * gradient[o];
      sum += weight_[i * width + o] * gradient[o];
    }
    if (!down.empty()) down[i] += sum;
  }
}

template <class Scalar>
void PlainLayer<Scalar>::clear_gradients() {
  weight_gradient_.assign(weight_.size(), 0);
  bias_gradient_.assign(bias_.size(), 0);
}

template <class Scalar>
void PlainLayer<Scalar>::append_gradients(std::vector<std::vector<Scalar>>& all) const {
  auto& weight = all.emplace_back(weight_gradient_.size());
  for (size_t i = 0; i < in_; ++i)
    for (size_t o = 0; o < out_.size(); ++o) weight[o * in_ + i] = weight_gradient_[i * out_.size() + o];
  if (has_bias_) all.push_back(bias_gradient_);
}

template <class Scalar>
PlainTrunk<Scalar>::PlainTrunk(int64_t observation_size, const std::vector<int64_t>& hidden)
    : input_(static_cast<size_t>(observation_size)) {
  int64_t width = observation_size;
  for (const int64_t out : hidden) {
    layers_.emplace_back(width, out);
    width = out;
  }
}

template <class Scalar>
void PlainTrunk<Scalar>::copy(const std::vector<Layer>& from) {
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i].copy(from[i]);
}

template <class Scalar>
void PlainTrunk<Scalar>::forward(std::span<const float> observation) {
  std::copy(observation.begin(), observation.end(), input_.begin());
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (auto& x : layers_[i].forward(input_of(i))) x = std::tanh(x);
  }
}

template <class Scalar>
void PlainTrunk<Scalar>::backward(std::vector<Scalar> gradient) {
  for (size_t i = layers_.size(); i-- > 0;) {
    const auto out = layers_[i].out();
    for (size_t o = 0; o < gradient.size(); ++o) gradient[o] *= 1 - out[o] * out[o];
    std::vector<Scalar> down(i == 0 ? 0 : layers_[i].in_size(), 0);
    layers_[i].backward(input_of(i), gradient, down);
    gradient = std::move(down);
  }
}

template <class Scalar>
void PlainTrunk<Scalar>::clear_gradients() {
  for (auto& layer : layers_) layer.clear_gradients();
}

template <class Scalar>
void PlainTrunk<Scalar>::append_gradients(std::vector<std::vector<Scalar>>& all) const {
  for (const auto& layer : layers_) layer.append_gradients(all);
}

template class PlainLayer<float>;
template class PlainLayer<double>;
template class PlainTrunk<float>;
template class PlainTrunk<double>;

}  // namespace farad::acer
