// The least that a step over two processes can cost: the same Linear, the same tensors handed over, and libtorch's own
// engine and optimizer, by processes that know beforehand what comes next.

#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <iostream>
#include <stdexcept>

#include "common/baton.h"
#include "common/sample.h"
#include "training/roles.h"

namespace farad::bench {
namespace {

using namespace std::chrono_literals;

enum Task : int { Call, Pass, Step };

const std::vector<int64_t> shape{step_batch, step_width};

}  // namespace

void step_floor(const Words& words) {
  Baton baton(words[0], true);
  const auto x = at::rand(shape);
  const auto ask = [&](Task task) {
    baton.pass(task);
    if (!baton.await()) throw std::runtime_error("[bench] the other half of the floor has ended");
  };
  const auto step = [&] {
    baton.put(x);
    ask(Call);
    const auto loss = baton.take(shape).set_requires_grad(true).sum();
    baton.put((*loss.grad_fn())(torch::autograd::variable_list{at::ones({})}).at(0));
    ask(Pass);
    ask(Step);
  };
  std::cout << nlohmann::json{{"all", time_each(step, 1s)}} << std::endl;
}

void step_floor_peer(const Words& words) {
  Baton baton(words[0], false);
  torch::nn::Linear linear(step_width, step_width);
  torch::optim::SGD optimizer(linear->parameters(), step_rate);
  at::Tensor y;
  while (baton.await()) {
    switch (baton.task()) {
      case Call:
        y = linear(baton.take(shape));
        baton.put(y.detach());
        break;
      case Pass:
        y.backward(baton.take(shape));
        y.reset();
        break;
      case Step:
        optimizer.step();
        for (const auto& parameter : linear->parameters()) parameter.mutable_grad().reset();
        break;
    }
    baton.pass();
  }
}

}  // namespace farad::bench
