#include <farad/error.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

#include "engine_against_torch.h"

namespace farad::autograd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::string error_of(const at::Tensor& root, const LocalOptions& options = {}) {
  try {
    run_local({root}, {}, options);
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

struct Thrower : torch::autograd::Function<Thrower> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list) { throw std::runtime_error("no such luck"); }
};

struct WrongShape : torch::autograd::Function<WrongShape> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list) { return {at::ones({4, 4})}; }
};

struct ComplexForReal : torch::autograd::Function<ComplexForReal> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list) { return {at::ones({3}, at::kComplexFloat)}; }
};

/// Not a torch::autograd::Function: those have their outputs counted before the engine sees them.
struct TooMany : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override { return {gradients[0], gradients[0]}; }
};

TEST(EngineErrors, AnExceptionInANodeNamesTheNode) {
  auto a = leaf({3});
  EXPECT_THAT(error_of(Thrower::apply(a).sum()),
              AllOf(HasSubstr("[autograd] node"), HasSubstr("Thrower"), HasSubstr("no such luck")));
}

TEST(EngineErrors, AHookThatThrowsNamesTheNode) {
  auto a = leaf({3});
  auto x = a.exp();
  x.register_hook([](at::Tensor) -> void { throw std::runtime_error("hooked"); });
  EXPECT_THAT(error_of(x.sum()), AllOf(HasSubstr("ExpBackward0"), HasSubstr("hooked")));
}

TEST(EngineErrors, ATensorThatWasChangedSinceIsNoticed) {
  auto a = leaf({3});
  auto x = a.exp();
  auto y = x.sum();
  x.detach().add_(1);
  EXPECT_THAT(error_of(y), HasSubstr("modified by an inplace operation"));
}

TEST(EngineErrors, GradientsThatFitNowhereAreNamed) {
  auto a = leaf({3});
  EXPECT_THAT(error_of(WrongShape::apply(a).sum()), AllOf(HasSubstr("WrongShape"), HasSubstr("[4, 4]")));
  EXPECT_THAT(error_of(ComplexForReal::apply(a).sum()), AllOf(HasSubstr("ComplexForReal"), HasSubstr("dtype")));
}

TEST(EngineErrors, AWrongNumberOfGradientsIsNamed) {
  auto a = leaf({3});
  auto node = compat::make_node<TooMany>();
  node->set_next_edges(torch::autograd::collect_next_edges(a));
  auto x = at::ones({3});
  torch::autograd::impl::set_gradient_edge(x, {node, node->add_input_metadata(x)});
  EXPECT_THAT(error_of(x.sum()), AllOf(HasSubstr("TooMany"), HasSubstr("expected 1, but got 2")));
}

TEST(EngineErrors, APassCanBeTriedAgainAfterAFailure) {
  auto a = leaf({3});
  bool fail = true;
  auto x = a.exp();
  x.register_hook([&](at::Tensor) {
    if (fail) throw std::runtime_error("once");
  });
  auto y = x.sum();
  EXPECT_THAT(error_of(y, {.retain_graph = true}), HasSubstr("once"));
  fail = false;
  expect_same_as_torch(y, {a});
}

TEST(EngineErrors, RootsThatCannotBeAreRefused) {
  auto a = leaf({3});
  EXPECT_THROW(run_local({a}, {}), c10::Error);
  EXPECT_THROW(run_local({at::ones({1})}, {}), c10::Error);
  EXPECT_THROW(run_local({a.sum()}, {at::ones({}), at::ones({})}), c10::Error);
}

TEST(EngineErrors, AnomalyModeFindsTheNodeThatMadeANaNAndWhereItWasMade) {
  const torch::autograd::DetectAnomalyGuard anomaly;
  auto a = at::zeros({3}).requires_grad_();
  auto y = (a.sqrt() * 0).sum();
  EXPECT_THAT(error_of(y), AllOf(HasSubstr("SqrtBackward0"), HasSubstr("nan values in its 0th output"),
                                 HasSubstr("Traceback of forward call"), HasSubstr("frame #")));
}

TEST(EngineErrors, WithoutAnomalyModeANaNIsAValue) {
  auto a = at::zeros({3}).requires_grad_();
  expect_same_as_torch((a.sqrt() * 0).sum(), {a});
  EXPECT_THAT(error_of(Thrower::apply(a).sum()), Not(HasSubstr("Traceback")));
}

}  // namespace
}  // namespace farad::autograd
