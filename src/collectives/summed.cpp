#include "collectives/summed.h"

#include <ATen/ops/div.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "autograd/torch_compat.h"

namespace farad::collectives {
namespace {

using torch::autograd::variable_list;

class SumNode final : public torch::autograd::Node {
 public:
  SumNode(torch::autograd::edge_list summands, double divisor) : Node(std::move(summands)), divisor_(divisor) {}

  std::string name() const override { return "ReducedSum"; }

 protected:
  /// The gradient of each summand is that of the sum.
  variable_list apply(variable_list&& gradients) override {
    auto& gradient = gradients[0];
    if (!gradient.defined()) return variable_list(num_outputs());
    return variable_list(num_outputs(), divisor_ == 1 ? gradient : at::div(gradient, divisor_));
  }

 private:
  const double divisor_;
};

}  // namespace

at::Tensor summed(at::Tensor sum, const std::vector<at::Tensor>& summands, double divisor) {
  const bool leads_on = std::ranges::any_of(summands, [](const at::Tensor& each) { return each.requires_grad(); });
  if (!leads_on) return sum;
  const auto node = autograd::compat::make_node<SumNode>(torch::autograd::collect_next_edges(summands), divisor);
  torch::autograd::impl::set_gradient_edge(sum, {node, node->add_input_metadata(sum)});
  return sum;
}

}  // namespace farad::collectives
