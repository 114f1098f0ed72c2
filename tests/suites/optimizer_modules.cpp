// Modules that live at other workers: called, trained, moved, saved, described.

#include <farad/module.h>
#include <farad/optim.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <filesystem>
#include <fstream>

#include "suites/rpc_suite.h"
#include "temporary_directory.h"

namespace farad::test {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;

/// With parameters, of which some are frozen, and with buffers.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width) : first(3, width), norm(width), second(width, 1) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
  }
  Tensor forward(const Tensor& x) { return second(norm(first(x).tanh())); }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};
TORCH_MODULE(Net);

Net make_net(int64_t width) { return Net(width); }
void freeze_and_evaluate(Net& net) {
  net->first->weight.set_requires_grad(false);
  net->eval();
}
bool is_frozen_and_evaluates(Net& net) {
  return !net->first->weight.requires_grad() && net->first->bias.requires_grad() && !net->is_training() &&
         !net->norm->is_training();
}
void evaluate_norm(Net& net) {
  net->train();
  net->norm->eval();
}
bool only_norm_evaluates(Net& net) {
  return net->is_training() && net->first->is_training() && !net->norm->is_training() && net->second->is_training();
}
void spoil(Net& net) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) parameter.zero_();
}

class Modules : public RpcSuite {
 protected:
  static Tensor input() { return at::arange(12, at::kFloat).reshape({4, 3}).sin(); }
  static Tensor give(const RRef<Net>& net) {
    const at::NoGradGuard no_grad;
    return net.rpc_sync<&NetImpl::forward>(input());
  }
  static void train(Worker& worker, const RRef<Net>& net) {
    DistributedOptimizer<torch::optim::SGD> optimizer(worker, parameters(net), torch::optim::SGDOptions(0.1));
    Context context(worker);
    context.backward({net.rpc_sync<&NetImpl::forward>(input()).square().sum()});
    optimizer.step(context);
  }

  const TemporaryDirectory directory_;
};

TEST_P(Modules, MovedOneIsTheSameAndLearnsOn) {
  Group group = start(3);
  auto& worker = group[0];
  const auto old = worker.remote<make_net>("worker1", 5);
  train(worker, old);  // so that its buffers are not what they were made with
  old.rpc_sync<freeze_and_evaluate>();
  const auto moved = move_to<make_net>(worker, old, "worker2", 5);
  EXPECT_EQ(moved.owner().name, "worker2");
  EXPECT_TRUE(at::equal(give(moved), give(old)));
  EXPECT_TRUE(moved.rpc_sync<is_frozen_and_evaluates>());

  const auto before = give(old);
  train(worker, moved);
  EXPECT_FALSE(at::equal(give(moved), before));
  EXPECT_TRUE(at::equal(give(old), before)) << "the old one is not the new one";
  train(worker, old);
  EXPECT_TRUE(at::equal(give(moved), give(old))) << "and both learn alike";
}

TEST_P(Modules, MovedOneTrainsWhereItDidAndEvaluatesWhereItDid) {
  Group group = start(3);
  auto& worker = group[0];
  const auto old = worker.remote<make_net>("worker1", 5);
  train(worker, old);
  old.rpc_sync<evaluate_norm>();
  const auto moved = move_to<make_net>(worker, old, "worker2", 5);
  EXPECT_TRUE(moved.rpc_sync<only_norm_evaluates>());
  train(worker, moved);
  train(worker, old);
  EXPECT_TRUE(at::equal(give(moved), give(old))) << "and both learn alike";
}

TEST_P(Modules, MoveOfOneThatDoesNotFitSaysWhat) {
  Group group = start(3);
  const auto old = group[0].remote<make_net>("worker1", 5);
  const auto message = message_of<Error>([&] { move_to<make_net>(group[0], old, "worker2", 6); });
  EXPECT_THAT(message, AllOf(HasSubstr("worker2"), HasSubstr("first.bias"), HasSubstr("nothing was changed")));
}

TEST_P(Modules, SavedOneIsLoadedElsewhere) {
  Group group = start(3);
  auto& worker = group[0];
  const auto net = worker.remote<make_net>("worker1", 5), other = worker.remote<make_net>("worker2", 5);
  train(worker, net);
  for (const auto& each : {net, other}) each.rpc_sync<freeze_and_evaluate>();
  const auto before = give(net);
  const auto file = directory_.path() + "/net.safetensors";
  for (int i = 0; i < 2; i++) save(net, file);  // the second time over what is there
  net.rpc_sync<spoil>();
  EXPECT_FALSE(at::equal(give(net), before));
  for (const auto& each : {net, other}) {
    load(each, file);
    EXPECT_TRUE(at::equal(give(each), before));
  }
  EXPECT_FALSE(std::filesystem::exists(file + ".new"));
}

TEST_P(Modules, FilesThatDoNotFitAreRefusedAndChangeNothing) {
  Group group = start(2);
  auto& worker = group[0];
  const auto net = worker.remote<make_net>("worker1", 5), wider = worker.remote<make_net>("worker1", 6);
  net.rpc_sync<freeze_and_evaluate>();
  const auto before = give(net);
  const auto file = directory_.path() + "/net.safetensors";
  const auto refusal = [&] { return message_of<Error>([&] { load(net, file); }); };
  EXPECT_THAT(refusal(), HasSubstr("net.safetensors"));
  save(wider, file);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("first.bias"), HasSubstr("nothing was changed")));
  std::ofstream(file) << "something else";
  EXPECT_THAT(refusal(), HasSubstr("net.safetensors"));
  EXPECT_TRUE(at::equal(give(net), before));
  EXPECT_THAT(message_of<Error>([&] { save(net, directory_.path() + "/none/net"); }), HasSubstr("none/net"));
}

TEST_P(Modules, DescriptionNamesOwnerAndParts) {
  Group group = start(2);
  const auto net = group[0].remote<make_net>("worker1", 5);
  EXPECT_THAT(describe(net), AllOf(testing::StartsWith("worker1: "), HasSubstr("in_features=3, out_features=5"),
                                   HasSubstr("learns 36 numbers")));
}

INSTANTIATE_TEST_SUITE_P(Each, Modules, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace farad::test
