// Modules that live on another worker, and their parameters.

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <farad/rref.h>
#include <farad/spawn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

namespace farad {
namespace {

using torch::nn::Linear;
using torch::nn::LinearImpl;

class Net : public torch::nn::Module {
 public:
  Net() : first_(register_module("first", Linear(3, 4))), second_(register_module("second", Linear(4, 2))) {}
  at::Tensor forward(const at::Tensor& x) { return second_->forward(first_->forward(x)); }

 private:
  Linear first_, second_;
};

Linear make_linear() { return Linear(3, 2); }
std::shared_ptr<Net> make_net() { return std::make_shared<Net>(); }
void add_one(at::Tensor& parameter) {
  c10::InferenceMode here;  // As an optimizer does: no history.
  parameter.detach().add_(1);
}
double sum(const at::Tensor& parameter) { return parameter.detach().sum().item<double>(); }

void at_rank_0(const std::function<void(Worker&)>& act) {
  spawn_threads(2, [&](Worker& worker) {
    if (worker.rank() == 0) act(worker);
  });
}

TEST(RemoteModule, MethodsAreCalledThroughHolders) {
  at_rank_0([](Worker& worker) {
    auto linear = worker.remote<make_linear>("worker1");
    auto net = worker.remote<make_net>("worker1");

    EXPECT_EQ(linear.rpc_sync<&LinearImpl::forward>(at::ones({5, 3})).size(1), 2);
    EXPECT_EQ(net.rpc_sync<&Net::forward>(at::ones({5, 3})).size(1), 2);
  });
}

TEST(RemoteModule, ParametersAreTheVeryTensorsOfTheModule) {
  at_rank_0([](Worker& worker) {
    auto linear = worker.remote<make_linear>("worker1");
    auto net = worker.remote<make_net>("worker1");

    const auto of_linear = parameters(linear);
    ASSERT_EQ(of_linear.size(), 2u);
    EXPECT_EQ(parameters(net).size(), 4u);
    for (const auto& parameter : of_linear) {
      EXPECT_EQ(parameter.owner().name, "worker1");
      const double before = parameter.rpc_sync<sum>();
      parameter.rpc_sync<add_one>();
      EXPECT_GT(parameter.rpc_sync<sum>(), before);
    }
    const auto out = linear.rpc_sync<&LinearImpl::forward>(at::ones({1, 3}));
    const auto again = parameters(linear);
    again[1].rpc_sync<add_one>();
    EXPECT_NEAR((linear.rpc_sync<&LinearImpl::forward>(at::ones({1, 3})) - out).sum().item<double>(), 2, 1e-4)
        << "the module sees what is done to them";
  });
}

}  // namespace
}  // namespace farad
