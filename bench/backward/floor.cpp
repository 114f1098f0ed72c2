// The least that a pass over two processes can cost: the same operations and the same handing over of tensors, by
// processes that know beforehand what comes next. Nothing is recorded, found or kept in step, and nobody may fail.

#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <iostream>
#include <stdexcept>

#include "backward/roles.h"
#include "common/baton.h"
#include "common/sample.h"

namespace farad::bench {
namespace {

using namespace std::chrono_literals;

enum Task : int { Call, Pass };

const std::vector<int64_t> shape{3, 3};

/// Without an engine: each result has one operation behind it.
torch::autograd::variable_list differentiate(const at::Tensor& result, at::Tensor gradient) {
  return (*result.grad_fn())({std::move(gradient)});
}

/// What Chain does in roles.cpp.
void run_chain(Baton& baton, const at::Tensor& a, const at::Tensor& b, int calls) {
  const auto ask = [&](Task task) {
    baton.pass(task);
    if (!baton.await()) throw std::runtime_error("[bench] the other half of the floor has ended");
  };
  auto y = a;
  for (int i = 0; i < calls; ++i) {
    baton.put(y);
    baton.put(b);
    ask(Call);
    y = baton.take(shape);
  }
  auto gradient = differentiate(y.set_requires_grad(true).sum(), at::ones({})).at(0);
  at::Tensor of_b;
  for (int i = 0; i < calls; ++i) {
    baton.put(gradient);
    ask(Pass);
    gradient = baton.take(shape);
    const auto part = baton.take(shape);
    of_b = of_b.defined() ? of_b.add(part) : part;
  }
}

}  // namespace

void pass_floor(const Words& words) {
  Baton baton(words[0], true);
  const auto a = at::rand(shape), b = at::rand(shape);
  std::cout << nlohmann::json{{"one call", time_each([&] { run_chain(baton, a, b, 1); }, 600ms)},
                              {"ten calls", time_each([&] { run_chain(baton, a, b, 10); }, 600ms)}}
            << std::endl;
}

void pass_floor_peer(const Words& words) {
  Baton baton(words[0], false);
  std::vector<at::Tensor> results;
  while (baton.await()) {
    if (baton.task() == Call) {
      const auto a = baton.take(shape).set_requires_grad(true), b = baton.take(shape).set_requires_grad(true);
      results.push_back(at::mul(a, b));
      baton.put(results.back().detach());
    } else {
      const auto gradients = differentiate(results.back(), baton.take(shape));
      results.pop_back();
      for (const auto& gradient : gradients) baton.put(gradient);
    }
    baton.pass();
  }
}

}  // namespace farad::bench
