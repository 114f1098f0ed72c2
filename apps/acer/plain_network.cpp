#include "acer/plain_network.h"

#include <algorithm>
#include <cmath>

namespace farad::acer {

template <class Scalar>
PlainNetwork<Scalar>::PlainNetwork(const NetworkShape& shape)
    : trunk_(shape.observation_size, shape.hidden),
      policy_(shape.top(), shape.actions),
      q_(shape.top(), shape.actions) {}

template <class Scalar>
void PlainNetwork<Scalar>::copy(const NetworkImpl& network) {
  trunk_.copy(network.trunk());
  policy_.copy(network.policy_head());
  q_.copy(network.q_head());
}

template <class Scalar>
void PlainNetwork<Scalar>::forward(std::span<const float> observation) {
  trunk_.forward(observation);
  q_.forward(trunk_.top());
  const auto p = policy_.forward(trunk_.top());
  const Scalar most = *std::max_element(p.begin(), p.end());
  Scalar sum = 0;
  for (auto& x : p) sum += x = std::exp(x - most);
  for (auto& x : p) x /= sum;
}

template <class Scalar>
void PlainNetwork<Scalar>::backward(std::span<const Scalar> logits, std::span<const Scalar> q) {
  std::vector<Scalar> gradient(trunk_.top().size(), 0);
  policy_.backward(trunk_.top(), logits, gradient);
  q_.backward(trunk_.top(), q, gradient);
  trunk_.backward(std::move(gradient));
}

template <class Scalar>
void PlainNetwork<Scalar>::clear_gradients() {
  trunk_.clear_gradients();
  policy_.clear_gradients();
  q_.clear_gradients();
}

template <class Scalar>
std::vector<std::vector<Scalar>> PlainNetwork<Scalar>::gradients() const {
  std::vector<std::vector<Scalar>> all;
  trunk_.append_gradients(all);
  policy_.append_gradients(all);
  q_.append_gradients(all);
  return all;
}

template <class Scalar>
PlainDuellingNetwork<Scalar>::PlainDuellingNetwork(const NetworkShape& shape)
    : trunk_(shape.observation_size, shape.hidden),
      mean_(shape.top(), shape.amounts),
      value_(shape.top(), 1),
      advantage_(shape.top() + shape.amounts, shape.top()),
      advantage_head_(shape.top(), 1),
      beside_(static_cast<size_t>(shape.top() + shape.amounts)) {}

template <class Scalar>
void PlainDuellingNetwork<Scalar>::copy(const DuellingNetworkImpl& network) {
  trunk_.copy(network.trunk());
  mean_.copy(network.mean_head());
  value_.copy(network.value_head());
  advantage_.copy(network.advantage_layer());
  advantage_head_.copy(network.advantage_head());
}

template <class Scalar>
void PlainDuellingNetwork<Scalar>::forward(std::span<const float> observation) {
  trunk_.forward(observation);
  for (auto& x : mean_.forward(trunk_.top())) x = std::tanh(x);
  value_.forward(trunk_.top());
}

template <class Scalar>
Scalar PlainDuellingNetwork<Scalar>::advantage(std::span<const double> action) {
  const auto top = trunk_.top();
  const auto rest = std::copy(top.begin(), top.end(), beside_.begin());
  std::transform(action.begin(), action.end(), rest, [](double x) { return static_cast<Scalar>(x); });
  for (auto& x : advantage_.forward(beside_)) x = std::tanh(x);
  return advantage_head_.forward(advantage_.out())[0];
}

template <class Scalar>
void PlainDuellingNetwork<Scalar>::backward(std::span<const Scalar> mean, Scalar value,
                                            const std::vector<Valued>& advantages) {
  std::vector<Scalar> down(trunk_.top().size(), 0), at_mean(mean.begin(), mean.end());
  for (size_t i = 0; i < at_mean.size(); ++i) at_mean[i] *= 1 - mean_.out()[i] * mean_.out()[i];
  mean_.backward(trunk_.top(), at_mean, down);
  value_.backward(trunk_.top(), std::span(&value, 1), down);
  for (const auto& one : advantages) {
    advantage(one.action);
    const auto hidden = advantage_.out();
    std::vector<Scalar> at_hidden(hidden.size(), 0), at_inputs(beside_.size(), 0);
    advantage_head_.backward(hidden, std::span(&one.gradient, 1), at_hidden);
    for (size_t i = 0; i < hidden.size(); ++i) at_hidden[i] *= 1 - hidden[i] * hidden[i];
    advantage_.backward(beside_, at_hidden, at_inputs);
    for (size_t i = 0; i < down.size(); ++i) down[i] += at_inputs[i];
  }
  trunk_.backward(std::move(down));
}

template <class Scalar>
void PlainDuellingNetwork<Scalar>::clear_gradients() {
  trunk_.clear_gradients();
  for (auto* layer : {&mean_, &value_, &advantage_, &advantage_head_}) layer->clear_gradients();
}

template <class Scalar>
std::vector<std::vector<Scalar>> PlainDuellingNetwork<Scalar>::gradients() const {
  std::vector<std::vector<Scalar>> all;
  trunk_.append_gradients(all);
  for (const auto* layer : {&mean_, &value_, &advantage_, &advantage_head_}) layer->append_gradients(all);
  return all;
}

template class PlainNetwork<float>;
template class PlainNetwork<double>;
template class PlainDuellingNetwork<float>;
template class PlainDuellingNetwork<double>;

}  // namespace farad::acer
