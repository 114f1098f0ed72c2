#pragma once

#include "acer/duelling_network.h"
#include "acer/plain_layer.h"

namespace farad::acer {

/// A copy of a Network's values, computed with by plain loops. In double it is also what libtorch's results, and its
/// gradients, are compared with.
template <class Scalar>
class PlainNetwork {
 public:
  explicit PlainNetwork(const NetworkShape& shape);

  void copy(const NetworkImpl& network);

  /// Of one observation. What is given stays until the next call.
  void forward(std::span<const float> observation);
  std::span<const Scalar> policy() const { return policy_.out(); }
  std::span<const Scalar> q() const { return q_.out(); }

  /// Adds to the gradients what follows from those of the logits and of Q at the last forward().
  void backward(std::span<const Scalar> logits, std::span<const Scalar> q);
  void clear_gradients();
  /// In the order of Network::parameters(), each as a row of numbers.
  std::vector<std::vector<Scalar>> gradients() const;

 private:
  PlainTrunk<Scalar> trunk_;
  PlainLayer<Scalar> policy_, q_;
};

/// The same of a DuellingNetwork.
template <class Scalar>
class PlainDuellingNetwork {
 public:
  explicit PlainDuellingNetwork(const NetworkShape& shape);

  void copy(const DuellingNetworkImpl& network);

  void forward(std::span<const float> observation);
  std::span<const Scalar> mean() const { return mean_.out(); }
  Scalar value() const { return value_.out()[0]; }
  /// A of an action, after forward().
  Scalar advantage(std::span<const double> action);

  /// An action, and the gradient by its A.
  struct Valued {
    std::vector<double> action;
    Scalar gradient = 0;
  };
  /// Adds what follows from gradients by the means, by V, and by the A of some actions, at the last forward().
  void backward(std::span<const Scalar> mean, Scalar value, const std::vector<Valued>& advantages);
  void clear_gradients();
  /// In the order of DuellingNetwork::parameters().
  std::vector<std::vector<Scalar>> gradients() const;

 private:
  PlainTrunk<Scalar> trunk_;
  PlainLayer<Scalar> mean_, value_, advantage_, advantage_head_;
  std::vector<Scalar> beside_;  // the top, and an action
};

extern template class PlainNetwork<float>;
extern template class PlainNetwork<double>;
extern template class PlainDuellingNetwork<float>;
extern template class PlainDuellingNetwork<double>;

}  // namespace farad::acer
