#pragma once

#include <torch/csrc/autograd/function.h>

#include <string>

namespace farad::autograd {

/// Whether this process is in anomaly mode (torch::autograd::AnomalyMode) and looks for NaN. A pass that began in such
/// a process does so on every worker.
bool looks_for_nan();

/// Throws a c10::Error if one of `outputs` has a NaN in it.
void check_for_nan(const torch::autograd::variable_list& outputs);

/// Where in the forward pass `node` was made, on lines of its own; that is known if this process was in anomaly mode
/// then.
std::string where_made(torch::autograd::Node& node);

}  // namespace farad::autograd
