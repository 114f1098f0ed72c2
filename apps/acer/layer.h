#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include <string>
#include <vector>

#include "acer/module.h"
#include "acer/random.h"

namespace farad::acer {

/// While there is one, libtorch records nothing on this thread, nor does it look whether it should.
using NoGraph = at::AutoDispatchBelowADInplaceOrView;

/// What networks here are made of.
struct Layer {
  at::Tensor weight;  ///< out x in
  at::Tensor bias;    ///< undefined if there is none
};

/// Registers weight and bias with a module, as NAME_weight and NAME_bias. Values as those of torch::nn::Linear, times
/// `scale`.
Layer add_layer(Module& to, const std::string& name, int64_t in, int64_t out, double scale, Random& random,
                bool with_bias = true);

/// Layers with tanh, which policies and critics stand on.
std::vector<Layer> add_trunk(Module& to, int64_t observation_size, const std::vector<int64_t>& hidden, Random& random);
at::Tensor forward(const std::vector<Layer>& trunk, const at::Tensor& observations);

}  // namespace farad::acer
