#pragma once

#include <span>
#include <vector>

#include "acer/network.h"

namespace farad::acer {

/// A copy of a Network's values, computed with by plain loops: for single observations of a small network that takes a
/// fraction of the time that libtorch needs to find out what to do. In double it is also what libtorch's results, and
/// its gradients, are compared with.
template <class Scalar>
class PlainNetwork {
 public:
  explicit PlainNetwork(const NetworkShape& shape);

  void copy(const NetworkImpl& network);

  /// Of one observation. What is given stays until the next call.
  void forward(std::span<const float> observation);
  std::span<const Scalar> policy() const { return policy_.out; }
  std::span<const Scalar> q() const { return q_.out; }

  /// Adds to the gradients what follows from those of the logits and of Q at the last forward().
  void backward(std::span<const Scalar> logits, std::span<const Scalar> q);
  void clear_gradients();
  /// In the order of Network::parameters(), each as a row of numbers.
  std::vector<std::vector<Scalar>> gradients() const;

 private:
  struct Layer {
    size_t in = 0, out_size = 0;
    std::vector<Scalar> weight;  // by input: the inner loop goes over outputs, which vectorises as it stands
    std::vector<Scalar> bias, out, weight_gradient, bias_gradient;

    void compute(std::span<const Scalar> input);
    /// Adds the gradient by the input to `down`.
    void propagate(std::span<const Scalar> input, std::span<const Scalar> gradient, std::span<Scalar> down);
  };
  static Layer layer(int64_t in, int64_t out);
  static void copy(const NetworkImpl::Layer& from, Layer& to);
  std::span<const Scalar> input_of(size_t layer) const {
    return layer == 0 ? std::span<const Scalar>(input_) : std::span<const Scalar>(trunk_[layer - 1].out);
  }

  std::vector<Scalar> input_;
  std::vector<Layer> trunk_;
  Layer policy_, q_;
};

extern template class PlainNetwork<float>;
extern template class PlainNetwork<double>;

}  // namespace farad::acer
