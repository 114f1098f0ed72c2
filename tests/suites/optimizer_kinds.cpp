// Each optimizer, with its options, over several owners: what one torch process does, to the bit; and what none of them
// may touch.

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "suites/optimizer_twins.h"

namespace farad::test {
namespace {

using at::Tensor;
using testing::HasSubstr;
using namespace torch::optim;

Tensor make_leaf(double value) { return at::full({3, 2}, value, at::kDouble).requires_grad_(); }
bool has_grad(Tensor& parameter) { return parameter.grad().defined(); }
Tensor squared(Tensor& x) { return x * x; }

/// check.operator()<Optimizer>(options) for each.
template <class Check>
void for_each_kind(const Check& check) {
  check.template operator()<SGD>(SGDOptions(0.5));
  check.template operator()<SGD>(SGDOptions(0.5).momentum(0.9).nesterov(true).weight_decay(0.01));
  check.template operator()<Adam>(AdamOptions(0.1));
  check.template operator()<AdamW>(AdamWOptions(0.1));
  check.template operator()<RMSprop>(RMSpropOptions(0.1));
  check.template operator()<Adagrad>(AdagradOptions(0.1));
}

class OptimizerKinds : public RpcSuite {
 protected:
  template <class Optimizer, class Options>
  void expect_as_in_one_process(const Options& options) {
    ::farad::test::Group group = start(3);
    const Twins twins(group, {1, 0, 2});
    DistributedOptimizer<Optimizer> far(group[0], twins.far(), options);
    Optimizer near(twins.near(), options);
    for (int i = 0; i < 5; i++) {
      Context context(group[0]);
      context.backward({twins.far_loss(Twins::input(i))});
      far.step(context);

      near.zero_grad();
      twins.near_loss(Twins::input(i)).backward();
      near.step();
      twins.expect_equal();
    }
  }
};

TEST_P(OptimizerKinds, Sgd) { expect_as_in_one_process<SGD>(SGDOptions(0.05)); }
TEST_P(OptimizerKinds, SgdWithMomentum) {
  expect_as_in_one_process<SGD>(SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.01));
}
TEST_P(OptimizerKinds, SgdWithDampening) {
  expect_as_in_one_process<SGD>(SGDOptions(0.05).momentum(0.8).dampening(0.3));
}
TEST_P(OptimizerKinds, AdamPlain) { expect_as_in_one_process<Adam>(AdamOptions(0.02)); }
TEST_P(OptimizerKinds, AdamWithAmsgrad) {
  expect_as_in_one_process<Adam>(AdamOptions(0.02).betas({0.8, 0.95}).weight_decay(0.1).amsgrad(true));
}
TEST_P(OptimizerKinds, AdamWPlain) { expect_as_in_one_process<AdamW>(AdamWOptions(0.02).weight_decay(0.1)); }
TEST_P(OptimizerKinds, RmsPropPlain) { expect_as_in_one_process<RMSprop>(RMSpropOptions(0.02)); }
TEST_P(OptimizerKinds, RmsPropCenteredWithMomentum) {
  expect_as_in_one_process<RMSprop>(RMSpropOptions(0.02).momentum(0.5).centered(true).weight_decay(0.01));
}
TEST_P(OptimizerKinds, AdagradPlain) {
  expect_as_in_one_process<Adagrad>(AdagradOptions(0.02).lr_decay(0.1).initial_accumulator_value(0.3));
}

TEST_P(OptimizerKinds, NoGradOfTheUserIsTouched) {
  Group group = start(2);
  auto& worker = group[0];
  for_each_kind([&]<class Optimizer>(const auto& options) {
    SCOPED_TRACE(detail::settings_of(options).kind);
    const auto far = worker.remote<make_leaf>("worker1", 1.0);
    Tensor near = make_leaf(3), expected = make_leaf(3);
    near.mutable_grad() = at::full({3, 2}, 100.0, at::kDouble);
    DistributedOptimizer<Optimizer> optimizer(worker, {far, RRef<Tensor>::local(worker, near)}, options);
    Context context(worker);
    context.backward({(far.to_here() * near).sum()});
    optimizer.step(context);
    expected.mutable_grad() = at::ones({3, 2}, at::kDouble);  // which is the context's
    Optimizer({expected}, options).step();
    EXPECT_TRUE(at::equal(near.detach(), expected.detach())) << near;
    EXPECT_TRUE(at::equal(near.grad(), at::full({3, 2}, 100.0, at::kDouble)));
    EXPECT_FALSE(far.rpc_sync<has_grad>());
  });
}

TEST_P(OptimizerKinds, GraphThatSavedTheOldValueFails) {
  Group group = start(2);
  auto& worker = group[0];
  for_each_kind([&]<class Optimizer>(const auto& options) {
    SCOPED_TRACE(detail::settings_of(options).kind);
    const auto far = worker.remote<make_leaf>("worker1", 1.0);
    DistributedOptimizer<Optimizer> optimizer(worker, {far}, options);
    Context context(worker);
    const auto old = far.rpc_sync<squared>();
    context.backward({far.to_here().sum()});
    optimizer.step(context);
    EXPECT_THAT(message_of<Error>([&] { context.backward({old.sum()}); }),
                HasSubstr("modified by an inplace operation"));
  });
}

INSTANTIATE_TEST_SUITE_P(Each, OptimizerKinds, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace farad::test
