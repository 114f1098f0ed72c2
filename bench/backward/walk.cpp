// The engine alone: one process, no call, and nodes that cost nothing themselves.

#include <ATen/ops/rand.h>
#include <farad/autograd.h>
#include <farad/spawn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <iostream>
#include <string>

#include "autograd/engine/run_local.h"
#include "autograd/torch_compat.h"
#include "backward/roles.h"

namespace farad::bench {

/// Outlined, so that callgrind can be told to count in here only.
[[gnu::noinline]] void walk_passes(const at::Tensor& root, const std::string& engine, Context* context, int passes) {
  const auto gradient = at::rand({3, 3});
  for (int i = 0; i < passes; ++i) {
    if (context) {
      context->backward({root}, {.grad_tensors = {gradient}, .retain_graph = true});
    } else if (engine == "farad") {
      autograd::run_local({root}, {gradient}, {.retain_graph = true});
    } else {
      torch::autograd::backward({root}, {gradient}, true);
    }
  }
}

namespace {

class Identity final : public torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
};

}  // namespace

void walk_graph(const Words& words) {
  constexpr int length = 1000;
  at::Tensor root = at::rand({3, 3}).set_requires_grad(true);
  for (int i = 0; i < length; ++i) {
    const auto node = autograd::compat::make_node<Identity>();
    node->set_next_edges(torch::autograd::collect_next_edges(root));
    auto next = at::rand({3, 3});
    torch::autograd::impl::set_gradient_edge(next, {node, node->add_input_metadata(next)});
    root = next;
  }
  const auto walk = [&](Context* context) {
    walk_passes(root, words[0], context, 1);  // Counted too: whoever counts takes away a run of no further passes.
    walk_passes(root, words[0], context, std::stoi(words[1]));
  };
  if (words[0] == "context") {
    spawn_threads(1, [&](Worker& worker) {
      Context context(worker);
      walk(&context);
    });
  } else {
    walk(nullptr);
  }
  std::cout << length + 1 << std::endl;
}

}  // namespace farad::bench
