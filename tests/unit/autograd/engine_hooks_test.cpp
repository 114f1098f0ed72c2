#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <memory>
#include <string>

#include "autograd/torch_compat.h"
#include "engine_against_torch.h"

namespace farad::autograd {
namespace {

using torch::autograd::variable_list;

struct PreHook final : torch::autograd::FunctionPreHook {
  explicit PreHook(std::function<variable_list(const variable_list&)> f) : call(std::move(f)) {}
  variable_list operator()(const variable_list& gradients) override { return call(gradients); }
  std::function<variable_list(const variable_list&)> call;
};

struct PostHook final : torch::autograd::FunctionPostHook {
  using Call = std::function<variable_list(const variable_list& outputs, const variable_list& inputs)>;
  explicit PostHook(Call f) : call(std::move(f)) {}
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    return call(outputs, inputs);
  }
  Call call;
};

class EngineHooks : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(7); }

  /// Runs backward() by us and by libtorch, and expects the same gradients and the same hooks in the same order.
  void expect_same(const at::Tensor& root, const Tensors& leaves) {
    log.clear();
    const auto ours = run_local({root}, {}, {.retain_graph = true});
    const auto our_log = std::exchange(log, {});
    torch::autograd::backward({root}, {}, true);
    EXPECT_EQ(our_log, log);
    for (const auto& leaf : leaves) EXPECT_TRUE(same(find(ours.gradients, leaf), leaf.grad()));
  }

  std::string log;
};

TEST_F(EngineHooks, HooksOfTensorsChangeAndSeeGradients) {
  auto a = leaf({3});
  auto x = a * 2;
  x.register_hook([&](at::Tensor g) {
    log += "x ";
    return g * 3;
  });
  x.register_hook([&](at::Tensor g) { log += "x' "; });
  a.register_hook([&](at::Tensor g) {
    log += "a ";
    return g + 1;
  });
  expect_same(x.exp().sum(), {a});
  EXPECT_EQ(log, "x x' a ");
}

TEST_F(EngineHooks, HooksOfALeafThatIsUsedTwiceSeeTheSum) {
  auto a = leaf({3});
  a.register_hook([&](at::Tensor g) {
    log += std::to_string(g.sum().item<float>()) + " ";
    return g * g;
  });
  expect_same((a * 2 + a.exp()).sum(), {a});
}

TEST_F(EngineHooks, HooksOfNodesRunBeforeAndAfterIt) {
  auto a = leaf({3});
  auto x = a * 2;
  auto y = x.sin();
  y.grad_fn()->add_pre_hook(std::make_unique<PreHook>([&](const variable_list& g) {
    log += "pre ";
    return variable_list{g[0] * 5};
  }));
  y.grad_fn()->add_post_hook(std::make_unique<PostHook>([&](const variable_list& out, const variable_list& in) {
    log += "post " + std::to_string(in[0].sum().item<float>()) + " ";
    return variable_list{out[0] + 1};
  }));
  auto accumulator = torch::autograd::impl::grad_accumulator(a);
  accumulator->add_pre_hook(std::make_unique<PreHook>([&](const variable_list& g) {
    log += "leaf-pre ";
    return variable_list{g[0] * 7};
  }));
  accumulator->add_post_hook(std::make_unique<PostHook>([&](const variable_list& out, const variable_list& in) {
    log += "leaf-post " + std::to_string(out.size()) + std::to_string(in.size()) + " ";
    return out;
  }));
  a.register_hook([&](at::Tensor g) {
    log += "a ";
    return g * 2;
  });
  expect_same(y.sum(), {a});
}

TEST_F(EngineHooks, ATensorThatRetainsItsGradientGetsIt) {
  auto a = leaf({3});
  auto x = a * 2;
  x.retain_grad();
  x.register_hook([&](at::Tensor g) { return g * 3; });
  auto root = x.exp().sum();

  run_local({root}, {}, {.retain_graph = true});
  const auto ours = x.grad().clone();
  x.mutable_grad().reset();
  torch::autograd::backward({root}, {}, true);
  EXPECT_TRUE(same(ours, x.grad()));
}

TEST_F(EngineHooks, AWantedGradientIsWhatItsTensorsHooksMadeOfIt) {
  auto a = leaf({3});
  auto x = a * 2;
  x.register_hook([&](at::Tensor g) {
    log += "x ";
    return g * 10;
  });
  a.register_hook([&](at::Tensor g) {
    log += "a ";
    return g * 100;
  });
  const auto result = run_local({(x * 3).sum()}, {}, {.all_leaves = false, .wanted = {x, a}}).wanted;
  EXPECT_TRUE(at::equal(result[0], at::full({3}, 30.f)));
  EXPECT_TRUE(at::equal(result[1], at::full({3}, 6000.f)));
  EXPECT_EQ(log, "x a ");
}

TEST_F(EngineHooks, WhatLeadsToNothingThatIsWantedIsNotRun) {
  auto a = leaf({3}), b = leaf({3});
  auto x = a * 2, y = b * 2;
  x.register_hook([&](at::Tensor) { log += "x "; });
  y.register_hook([&](at::Tensor) { log += "y "; });
  a.register_hook([&](at::Tensor) { log += "a "; });
  auto root = (x.exp() * y).sum();

  const auto inputs = run_local({root}, {}, {.retain_graph = true, .all_leaves = false, .leaves = {b}});
  const auto ours = std::exchange(log, {});
  torch::autograd::backward({root}, {}, true, false, {b});
  EXPECT_EQ(ours, log);
  EXPECT_EQ(ours, "y ");
  ASSERT_EQ(inputs.gradients.size(), 1u);
  EXPECT_TRUE(same(find(inputs.gradients, b), b.grad()));
}

#if FARAD_TORCH_SINCE(2, 1)
struct PostAccumulate final : torch::autograd::PostAccumulateGradHook {
  explicit PostAccumulate(std::function<void(const at::Tensor&)> f) : call(std::move(f)) {}
  void operator()(const at::Tensor& leaf) override { call(leaf); }
  std::function<void(const at::Tensor&)> call;
};

TEST_F(EngineHooks, PostAccumulateHooksSeeTheLeafAndNoGradientInIt) {
  auto a = leaf({3});
  int calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(a, std::make_unique<PostAccumulate>([&](const at::Tensor& leaf) {
                                                   calls++;
                                                   EXPECT_TRUE(leaf.is_same(a));
                                                   EXPECT_FALSE(leaf.grad().defined());
                                                 }));
  run_local({(a * 2).sum()}, {});
  EXPECT_EQ(calls, 1);
}
#endif

}  // namespace
}  // namespace farad::autograd
