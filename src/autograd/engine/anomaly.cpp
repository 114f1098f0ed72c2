#include "autograd/engine/anomaly.h"

#include <ATen/core/TensorBody.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include "autograd/torch_compat.h"

namespace farad::autograd {

using torch::autograd::AnomalyMode;

bool looks_for_nan() { return AnomalyMode::is_enabled() && AnomalyMode::should_check_nan(); }

void check_for_nan(const torch::autograd::variable_list& outputs) {
  const c10::AutoGradMode unrecorded(false);
  for (size_t i = 0; i < outputs.size(); i++) {
    if (!outputs[i].defined()) continue;
    const at::Tensor values = outputs[i].is_sparse() ? outputs[i]._values() : outputs[i];
    TORCH_CHECK(!values.isnan().any().item<bool>(), "returned nan values in its ", i, "th output");
  }
}

std::string where_made(torch::autograd::Node& node) {
  // What a node remembers of this is given away only as a warning.
  compat::Warnings warnings;
  node.metadata()->print_stack(node.name());
  return warnings.text().empty() ? std::string() : "\n" + warnings.text();
}

}  // namespace farad::autograd
