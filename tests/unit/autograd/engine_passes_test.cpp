#include <c10/util/ThreadLocalDebugInfo.h>
#include <farad/error.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <random>
#include <thread>

#include "autograd/engine/scan.h"
#include "engine_against_torch.h"

namespace farad::autograd {
namespace {

class EnginePasses : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(7); }
};

TEST_F(EnginePasses, GradientsOfGradients) {
  auto a = leaf({4, 3}), b = leaf({3, 2});
  auto y = at::tanh(at::matmul(a, b)) * a.sum();
  expect_same_as_torch({y.pow(2).sum()}, {}, {a, b}, /*create_graph=*/true);

  auto ours = run_local({y.sum()}, {}, {.create_graph = true, .all_leaves = false, .wanted = {a, b}}).wanted;
  auto theirs = torch::autograd::grad({y.sum()}, {a, b}, {}, true, true);
  // A gradient penalty, then a third derivative.
  auto penalty = [](const Tensors& g) { return (g[0].norm(2) - 1).pow(2) + g[1].pow(3).sum(); };
  auto our_second =
      run_local({penalty(ours)}, {}, {.create_graph = true, .all_leaves = false, .wanted = {a, b}}).wanted;
  auto their_second = torch::autograd::grad({penalty(theirs)}, {a, b}, {}, true, true);
  for (int i = 0; i < 2; i++) EXPECT_TRUE(same(our_second[i], their_second[i]));
  auto our_third =
      run_local({our_second[0].sum()}, {}, {.retain_graph = true, .all_leaves = false, .wanted = {b}}).wanted;
  auto their_third = torch::autograd::grad({their_second[0].sum()}, {b});
  EXPECT_TRUE(same(our_third[0], their_third[0]));
}

TEST_F(EnginePasses, WithoutCreateGraphNothingIsRecordedWhateverTheCallersMode) {
  auto a = leaf({3});
  auto y = a.exp().sum();
  EXPECT_FALSE(run_local({y}, {}, {.retain_graph = true}).gradients[0].gradient.requires_grad());
  const c10::InferenceMode inference;
  auto gradient = run_local({y}, {}, {.create_graph = true}).gradients[0].gradient;
  EXPECT_TRUE(gradient.requires_grad());
  EXPECT_FALSE(gradient.is_inference());
}

TEST_F(EnginePasses, TheCallersThreadIsLeftAsItWas) {
  auto a = leaf({3});
  auto y = a.exp().sum();
  const c10::AutoGradMode off(false);
  run_local({y}, {}, {.create_graph = true});
  EXPECT_FALSE(c10::GradMode::is_enabled());
}

TEST_F(EnginePasses, AThreadThatRunsNodesForAnotherDoesSoInItsState) {
  auto a = leaf({3});
  std::shared_ptr<c10::ThreadLocalDebugInfo> seen;
  a.register_hook([&](at::Tensor) { seen = c10::ThreadLocalDebugInfo::current(); });
  auto plan = std::make_shared<Plan>();
  ASSERT_TRUE(scan({.roots = {torch::autograd::impl::gradient_edge(a)}}, *plan).ok());

  std::unique_ptr<Evaluator> evaluator;
  std::shared_ptr<c10::ThreadLocalDebugInfo> callers;
  {
    struct Info : c10::DebugInfoBase {};
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::TEST_INFO, std::make_shared<Info>());
    callers = c10::ThreadLocalDebugInfo::current();
    evaluator = std::make_unique<Evaluator>(plan, EvaluatorOptions{.state = at::ThreadLocalState()});
  }
  std::thread([&] {
    const Evaluator::Scope scope(*evaluator);
    EXPECT_FALSE(c10::GradMode::is_enabled());
    EXPECT_TRUE(evaluator->feed(plan->roots[0], at::ones({3})).ok());
    EXPECT_TRUE(evaluator->run(plan->roots[0].node).ok());
  }).join();
  ASSERT_TRUE(callers);
  EXPECT_EQ(seen, callers);
}

TEST_F(EnginePasses, AGraphIsReleasedUnlessItIsRetained) {
  auto a = leaf({3});
  auto y = a.exp().sum();
  run_local({y}, {}, {.retain_graph = true});
  run_local({y}, {});
  EXPECT_THROW(run_local({y}, {}), Error);
}

TEST_F(EnginePasses, OnlyWhatRanIsReleased) {
  auto a = leaf({3}), b = leaf({3});
  auto x = a.exp(), y = b.exp();
  run_local({(x + y).sum()}, {}, {.all_leaves = false, .leaves = {a}});
  EXPECT_NO_THROW(run_local({y.sum()}, {}));
  EXPECT_THROW(run_local({x.sum()}, {}), Error);
}

TEST_F(EnginePasses, AChainOf300000Nodes) {
  auto a = leaf({1});
  auto value = a;
  for (int i = 0; i < 300'000; i++) value = value * 1;
  auto result = run_local({value}, {});
  EXPECT_TRUE(at::equal(result.gradients.at(0).gradient, at::ones({1})));
  value.reset();  // Overflows the stack if the nodes' ends nest.
}

TEST_F(EnginePasses, AChainOfCreatedGraphsEndsWithoutRecursion) {
  auto a = leaf({1});
  auto value = a;
  for (int i = 0; i < 20'000; i++) value = value * a;
  auto gradient = run_local({value}, {}, {.create_graph = true}).gradients.at(0).gradient;
  EXPECT_TRUE(gradient.requires_grad());
}

TEST_F(EnginePasses, SeveralThreadsMayRunPassesOverOneGraphAtOnce) {
  auto a = leaf({8, 8}), b = leaf({8, 8});
  auto x = a;
  for (int i = 0; i < 30; i++) x = at::tanh(at::matmul(x, b)) + a;
  auto y = x.sum();
  const auto expected = run_local({y}, {}, {.retain_graph = true}).gradients;

  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; i++) {
        const auto result = run_local({y}, {}, {.create_graph = t % 2 == 1, .retain_graph = true}).gradients;
        ASSERT_EQ(result.size(), 2u);
        for (const auto& leaf : {a, b}) EXPECT_TRUE(same(find(result, leaf), find(expected, leaf)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(EnginePasses, GraphsMadeOnSeveralThreadsRunInAFixedOrder) {
  auto a = leaf({64});
  Tensors parts(4);
  for (auto& part : parts) {
    std::thread([&] { part = a * a.sin() + a.exp(); }).join();
  }
  auto y = (parts[0] + parts[1] + parts[2] + parts[3]).sum();
  const auto first = run_local({y}, {}, {.retain_graph = true}).gradients;
  const auto second = run_local({y}, {}, {.retain_graph = true}).gradients;
  EXPECT_TRUE(same(first[0].gradient, second[0].gradient));
}

/// Recomputes what it stands for, in a pass of its own, when its gradient comes.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor compute(const at::Tensor& x) { return at::sin(x) * x; }
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return compute(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto x = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor y;
    {
      const c10::AutoGradMode on(true);
      y = compute(x);
    }
    return {run_local({y}, {gradients[0]}).gradients.at(0).gradient};
  }
};

TEST_F(EnginePasses, ANodeMayRunAPassOfItsOwn) {
  auto a = leaf({5});
  auto x = a * 2, y = a * 2;
  for (int i = 0; i < 3; i++) {
    x = Recomputed::apply(x);
    y = Recomputed::compute(y);
  }
  const auto nested = run_local({x.sum()}, {}, {.retain_graph = true}).gradients;
  const auto plain = run_local({y.sum()}, {}).gradients;
  EXPECT_TRUE(same(nested[0].gradient, plain[0].gradient));
  torch::autograd::backward({x.sum()}, {});  // within libtorch's engine, too
  EXPECT_TRUE(same(nested[0].gradient, a.grad()));
}

/// Runs a pass with the ready nodes in an order drawn from `seed`, as messages might bring about.
at::Tensor gradient_in_some_order(const at::Tensor& root, bool deterministic, unsigned seed) {
  auto plan = std::make_shared<Plan>();
  EXPECT_TRUE(scan({.roots = {torch::autograd::impl::gradient_edge(root)}}, *plan).ok());
  Evaluator evaluator(plan, {.retain_graph = true, .deterministic = deterministic});
  const Evaluator::Scope scope(evaluator);
  EXPECT_TRUE(evaluator.feed(plan->roots[0], at::ones_like(root)).ok());

  std::mt19937 random(seed);
  std::vector<uint32_t> pending(plan->size());
  for (const Link& link : plan->topology.links) {
    if (link.node != no_node) pending[link.node]++;
  }
  std::vector<NodeIndex> ready{plan->roots[0].node};
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const NodeIndex node = ready.back();
    ready.pop_back();
    EXPECT_TRUE(evaluator.run(node).ok());
    for (const Link& link : plan->topology.links_of(node)) {
      if (link.node != no_node && --pending[link.node] == 0) ready.push_back(link.node);
    }
  }
  return evaluator.take_gradients().at(0).gradient;
}

TEST_F(EnginePasses, InDeterministicModeTheOrderOfNodesDoesNotChangeABit) {
  auto a = leaf({256});
  Tensors parts;
  for (int i = 0; i < 12; i++) parts.push_back((a * a.sin() * i).exp().tanh() * a);
  auto y = at::stack(parts).sum();
  const auto expected = gradient_in_some_order(y, true, 0);
  bool order_matters = false;
  for (unsigned seed = 1; seed < 20; seed++) {
    EXPECT_TRUE(same(gradient_in_some_order(y, true, seed), expected)) << "seed " << seed;
    order_matters |= !same(gradient_in_some_order(y, false, seed), expected);
  }
  EXPECT_TRUE(order_matters) << "this graph does not show what the mode is for";
  EXPECT_TRUE(at::allclose(run_local({y}, {}).gradients[0].gradient, expected));
}

}  // namespace
}  // namespace farad::autograd
