// Each optimizer, with its options, over several owners: what one torch process does, to the bit.

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "suites/optimizer_twins.h"

namespace farad::test {
namespace {

using namespace torch::optim;

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

INSTANTIATE_TEST_SUITE_P(Each, OptimizerKinds, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace farad::test
