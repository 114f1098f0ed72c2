// Random models over simulated workers, with the gradients of one process: the same values, defined for the same
// leaves. Then an end, and nothing is left.

#include <ATen/ATen.h>
#include <farad/autograd.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <sstream>

#include "sim/model.h"
#include "sim/simulation.h"
#include "suites/seeds.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using Tensors = std::vector<Tensor>;

/// Of each parameter, whether it has a gradient, and which.
using Collected = std::vector<std::pair<bool, Tensor>>;

Collected collect(int64_t context) {
  auto& worker = Worker::current();
  const auto all = gradients(worker, context);
  Collected collected;
  for (const auto& leaf : (*far_parameters)[worker.rank()]) {
    const Tensor gradient = all.find(leaf);
    collected.emplace_back(gradient.defined(), gradient.defined() ? gradient.detach() : at::zeros({}));
  }
  return collected;
}

std::string contexts_here() {
  const auto debug = Worker::current().debug();
  std::ostringstream text;
  if (!debug.contexts.empty()) text << Worker::current().self().name << ":\n" << debug;
  return text.str();
}

/// What is left at every worker that is there.
std::string contexts_everywhere(Worker& worker) {
  std::string all;
  for (int rank = 0; rank < worker.size(); rank++) {
    try {
      all += worker.rpc_sync<contexts_here>(rank);
    } catch (const PeerLost&) {
    }
  }
  return all;
}

/// What is done with the tensors that a model gives. Drawn before it runs, and the same near and far.
struct Ending {
  enum class Kind { Plain, Explicit, Twice, Inputs, Fast, SecondOrder };
  Kind kind = Kind::Plain;
  std::vector<double> factors;

  static Ending draw(net::sim::Random& random) {
    Ending ending;
    ending.kind = static_cast<Kind>(random.below(6));
    for (int i = 0; i < 3; i++) ending.factors.push_back(0.5 + static_cast<double>(random.below(100)) / 50);
    return ending;
  }
  Tensor loss(const Tensors& tensors) const {
    Tensor loss = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < tensors.size(); i++) loss = loss + (tensors[i] * factors[i]).sum();
    return loss;
  }
};

Tensor penalty(const Tensors& gradients) {
  Tensor sum = at::zeros({}, at::kDouble);
  for (const auto& gradient : gradients) {
    if (gradient.defined()) sum = sum + (gradient * gradient).sum();
  }
  return sum;
}

void end_near(const Ending& ending, const Tensors& tensors, const Parameters& parameters) {
  using Kind = Ending::Kind;
  const Tensor loss = ending.loss(tensors);
  if (!loss.requires_grad()) return;
  switch (ending.kind) {
    case Kind::Plain:
    case Kind::Fast:
      return torch::autograd::backward({loss});
    case Kind::Explicit:
      return torch::autograd::backward({loss}, {at::full({}, 3.0, at::kDouble)});
    case Kind::Twice:
      torch::autograd::backward({loss}, {}, true);
      return torch::autograd::backward({loss});
    case Kind::Inputs:
      return torch::autograd::backward({loss}, {}, false, false, parameters[0]);
    case Kind::SecondOrder: {
      const auto sum = penalty(torch::autograd::grad({loss}, parameters[0], {}, true, true, true));
      if (sum.requires_grad()) torch::autograd::backward({sum});
      return;
    }
  }
}

void end_far(const Ending& ending, const Tensors& tensors, const Parameters& parameters, Context& context) {
  using Kind = Ending::Kind;
  const Tensor loss = ending.loss(tensors);
  if (!loss.requires_grad()) return;
  switch (ending.kind) {
    case Kind::Plain:
      return context.backward({loss});
    case Kind::Explicit:
      return context.backward({loss}, {.grad_tensors = {at::full({}, 3.0, at::kDouble)}});
    case Kind::Twice:
      context.backward({loss}, {.retain_graph = true});
      return context.backward({loss}, {.deterministic = true});
    case Kind::Inputs:
      return context.backward({loss}, {.inputs = parameters[0]});
    case Kind::Fast:
      try {
        return context.backward({loss}, {.retain_graph = true, .mode = Mode::Fast});
      } catch (const Aborted& error) {
        EXPECT_NE(std::string(error.what()).find("not"), std::string::npos);
        return context.backward({loss});  // A call was not used: SMART does not mind.
      }
    case Kind::SecondOrder: {
      const auto sum = penalty(grad(context, {loss}, parameters[0], {.create_graph = true}));
      if (sum.requires_grad()) context.backward({sum});
      return;
    }
  }
}

void compare(int rank, const Collected& far, const Tensors& near) {
  ASSERT_EQ(far.size(), near.size());
  for (size_t i = 0; i < near.size(); i++) {
    const Tensor& expected = near[i].grad();
    ASSERT_EQ(far[i].first, expected.defined()) << "parameter " << i << " of worker" << rank;
    if (!expected.defined()) continue;
    EXPECT_TRUE(at::allclose(far[i].second, expected, 1e-9, 1e-12))
        << "parameter " << i << " of worker" << rank << ":\n"
        << far[i].second << "\nnot\n"
        << expected;
  }
}

void try_seed(uint64_t seed, Simulation::Options options) {
  net::sim::Random draw(seed * 2 + 1);
  const int workers = 1 + static_cast<int>(draw.below(options.size));
  options.size = workers;
  const Model model = Model::draw(draw, workers);
  const Ending ending = Ending::draw(draw);
  auto near = draw_parameters(draw, workers);
  Parameters far;
  for (const auto& each : near) {
    auto& copies = far.emplace_back();
    for (const auto& leaf : each) copies.push_back(leaf.detach().clone().requires_grad_());
  }
  end_near(ending, run_near(model, near), near);

  far_parameters = &far;
  Simulation simulation(seed, options);
  const auto program = [&](Worker& worker) {
    if (worker.rank() != 0) return;
    {
      Context context(worker);
      end_far(ending, run_far(model), far, context);
      for (int rank = 0; rank < workers; rank++) {
        compare(rank, worker.rpc_sync<collect>(rank, context.id()), near[rank]);
      }
    }
    EXPECT_TRUE(simulation.eventually([&] { return contexts_everywhere(worker).empty(); }))
        << "contexts are left at " << contexts_everywhere(worker);
  };
  simulation.run(program);
}

TEST(RandomModels, HaveTheGradientsOfOneProcess) {
  for_each_seed(1000, [](uint64_t seed) { try_seed(seed, {.size = 8}); });
}

}  // namespace
}  // namespace farad::test
