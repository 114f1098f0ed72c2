#pragma once

#include <span>
#include <vector>

#include "acer/layer.h"

namespace farad::acer {

/// A layer of a network, computed with by plain loops: for single observations of a small network that takes a fraction
/// of the time that libtorch needs to find out what to do.
template <class Scalar>
class PlainLayer {
 public:
  PlainLayer() = default;
  PlainLayer(int64_t in, int64_t out);

  void copy(const Layer& from);

  /// What is given stays until the next call.
  std::span<Scalar> forward(std::span<const Scalar> input);
  std::span<Scalar> out() { return out_; }
  std::span<const Scalar> out() const { return out_; }
  size_t in_size() const { return in_; }

  /// Adds to the gradients of weight and bias, and to `down` that by the input unless it is empty.
  void backward(std::span<const Scalar> input, std::span<const Scalar> gradient, std::span<Scalar> down);
  void clear_gradients();
  /// Adds those of the weight and, if the layer has one, of the bias.
  void append_gradients(std::vector<std::vector<Scalar>>& all) const;

 private:
  size_t in_ = 0;
  bool has_bias_ = true;
  std::vector<Scalar> weight_;  // by input: the inner loop goes over outputs, which vectorises as it stands
  std::vector<Scalar> bias_, out_, weight_gradient_, bias_gradient_;
};

/// Layers with tanh.
template <class Scalar>
class PlainTrunk {
 public:
  PlainTrunk(int64_t observation_size, const std::vector<int64_t>& hidden);

  void copy(const std::vector<Layer>& from);

  void forward(std::span<const float> observation);
  std::span<const Scalar> top() const { return input_of(layers_.size()); }

  /// `gradient` by the top of the last forward(); it is used up.
  void backward(std::vector<Scalar> gradient);
  void clear_gradients();
  void append_gradients(std::vector<std::vector<Scalar>>& all) const;

 private:
  std::span<const Scalar> input_of(size_t layer) const {
    return layer == 0 ? std::span<const Scalar>(input_) : layers_[layer - 1].out();
  }

  std::vector<Scalar> input_;
  std::vector<PlainLayer<Scalar>> layers_;
};

extern template class PlainLayer<float>;
extern template class PlainLayer<double>;
extern template class PlainTrunk<float>;
extern template class PlainTrunk<double>;

}  // namespace farad::acer
