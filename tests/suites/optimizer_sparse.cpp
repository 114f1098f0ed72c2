// Sparse gradients, and what optimizers make of them.

#include <farad/loss_scale.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "suites/optimizer_twins.h"
#include "temporary_directory.h"

namespace farad::test {
namespace {

using at::Tensor;
using namespace torch::optim;

Tensor make_table() { return at::arange(12, at::kDouble).reshape({6, 2}).sin().requires_grad_(); }
/// Some rows, the first of them twice.
Tensor rows(int64_t step) { return at::tensor({step % 6, (step * 5 + 1) % 6, step % 6}, at::kLong); }
Tensor embed(const Tensor& table, const Tensor& rows) { return at::embedding(table, rows, -1, false, true); }
Tensor embed_there(Tensor& table, const Tensor& rows) { return embed(table, rows); }
Tensor value_of(Tensor& parameter) { return parameter.detach(); }
Tensor gradient_there(Tensor& leaf, int64_t context) { return gradients(Worker::current(), context).find(leaf); }

class OptimizerSparse : public RpcSuite {
 protected:
  void SetUp() override { near_table_ = make_table(); }

  void far_step(Worker& worker, const RRef<Tensor>& table, AnyOptimizer& optimizer, int64_t step) {
    Context context(worker);
    context.backward({table.rpc_sync<embed_there>(rows(step)).square().sum()});
    optimizer.step(context);
  }
  void near_step(Optimizer& optimizer, int64_t step) {
    near_table_.mutable_grad().reset();
    embed(near_table_, rows(step)).square().sum().backward();
    ASSERT_TRUE(near_table_.grad().is_sparse());
    optimizer.step();
  }
  void expect_close(const RRef<Tensor>& table) const {
    const auto value = table.rpc_sync<value_of>();
    EXPECT_TRUE(at::allclose(value, near_table_.detach(), 1e-12, 1e-14)) << value << "\nnot\n" << near_table_;
  }
  template <class Kind, class Options>
  void expect_as_in_one_process(const Options& options) {
    ::farad::test::Group group = start(2);
    const auto table = group[0].remote<make_table>("worker1");
    DistributedOptimizer<Kind> far(group[0], {table}, options);
    Kind near({near_table_}, options);
    for (int64_t step = 0; step < 7; step++) {
      far_step(group[0], table, far, step);
      near_step(near, step);
      expect_close(table);
    }
  }

  const TemporaryDirectory directory_;
  Tensor near_table_;
};

TEST_P(OptimizerSparse, SgdIsThatOfOneProcess) { expect_as_in_one_process<SGD>(SGDOptions(0.1)); }
TEST_P(OptimizerSparse, SgdWithMomentumIsThatOfOneProcess) {
  expect_as_in_one_process<SGD>(SGDOptions(0.1).momentum(0.9));
}
TEST_P(OptimizerSparse, SgdWithNesterovIsThatOfOneProcess) {
  expect_as_in_one_process<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true));
}
TEST_P(OptimizerSparse, AdagradIsThatOfOneProcess) { expect_as_in_one_process<Adagrad>(AdagradOptions(0.1)); }

TEST_P(OptimizerSparse, SparseMomentumIsSavedAndLoaded) {
  const auto options = SGDOptions(0.1).momentum(0.9).nesterov(true);  // which takes no dense one for sparse gradients
  SGD near({near_table_}, options);
  {
    Group group = start(2);
    const auto table = group[0].remote<make_table>("worker1");
    DistributedOptimizer<SGD> far(group[0], {table}, options);
    for (int64_t step = 0; step < 3; step++) {
      far_step(group[0], table, far, step);
      near_step(near, step);
    }
    far.save(directory_.path());
  }
  Group group = start(3);
  const auto table = group[0].remote<make_table>("worker2");
  DistributedOptimizer<SGD> far(group[0], {table}, options);
  far.load(directory_.path());
  expect_close(table);
  for (int64_t step = 3; step < 7; step++) {
    far_step(group[0], table, far, step);
    near_step(near, step);
    expect_close(table);
  }
}

TEST_P(OptimizerSparse, ClippingIsThatOfDenseGradients) {
  Group group = start(2);
  auto& worker = group[0];
  const auto table = worker.remote<make_table>("worker1");
  DistributedOptimizer<SGD> far(worker, {table}, SGDOptions(0.1));
  const auto far_loss = [&] { return table.rpc_sync<embed_there>(rows(1)).square().sum(); };
  const auto near_gradient = [&] {
    near_table_.mutable_grad().reset();
    embed(near_table_, rows(1)).square().sum().backward();
    return near_table_.grad().to_dense();
  };
  const auto gradient = near_gradient();
  const double norm = gradient.norm().item<double>();
  Context context(worker);
  context.backward({far_loss()});
  EXPECT_NEAR(far.clip_grad_norm(context, norm / 4), norm, 1e-12) << "of two equal rows the sum counts";
  EXPECT_NEAR(far.clip_grad_norm(context, norm), norm / 4, 1e-5);
  const double limit = norm / 16;
  far.clip_grad_value(context, limit);
  const auto clipped = table.rpc_sync<gradient_there>(context.id());
  ASSERT_TRUE(clipped.is_sparse());
  EXPECT_TRUE(at::allclose(clipped.to_dense(), (gradient / 4).clamp(-limit, limit), 1e-5));
}

TEST_P(OptimizerSparse, ClippingLeavesOutWhatTheOptimizerDoesNotHave) {
  Group group = start(2);
  auto& worker = group[0];
  const auto table = worker.remote<make_table>("worker1"), other = worker.remote<make_table>("worker1");
  DistributedOptimizer<SGD> far(worker, {table}, SGDOptions(0.1));
  Context context(worker);
  context.backward({table.to_here().sum() + other.to_here().sum() * 100});
  EXPECT_NEAR(far.clip_grad_norm(context, 1), std::sqrt(12.0), 1e-12);
  far.clip_grad_value(context, 0.125);
  EXPECT_TRUE(at::equal(table.rpc_sync<gradient_there>(context.id()), at::full({6, 2}, 0.125, at::kDouble)));
  EXPECT_TRUE(at::equal(other.rpc_sync<gradient_there>(context.id()), at::full({6, 2}, 100.0, at::kDouble)));
}

TEST_P(OptimizerSparse, ClippingUnderALossScaleIsOfTheGradientsWithoutIt) {
  Group group = start(2);
  auto& worker = group[0];
  const auto table = worker.remote<make_table>("worker1");
  DistributedOptimizer<SGD> far(worker, {table}, SGDOptions(1));
  LossScale scale({.value = 1024});
  Context context(worker);
  context.backward({scale.apply(table.to_here().sum())});
  const double norm = std::sqrt(12.0);
  EXPECT_NEAR(scale.clip_grad_norm(far, context, norm / 2), norm, 1e-12);
  EXPECT_TRUE(scale.step(far, context));
  EXPECT_TRUE(at::allclose(table.rpc_sync<value_of>(), make_table().detach() - 0.5, 1e-8, 1e-8));
}

INSTANTIATE_TEST_SUITE_P(Each, OptimizerSparse, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace farad::test
