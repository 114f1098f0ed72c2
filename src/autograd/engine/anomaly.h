#pragma once

#include <torch/csrc/autograd/function.h>

#include <string>

namespace farad::autograd {

/// In anomaly mode (torch::autograd::AnomalyMode), which holds for the whole process: throws a c10::Error if one of
/// `outputs` has a NaN in it.
void check_for_nan(const torch::autograd::variable_list& outputs);

/// In anomaly mode: where in the forward pass `node` was made, on lines of its own. Otherwise nothing.
std::string where_made(torch::autograd::Node& node);

}  // namespace farad::autograd
