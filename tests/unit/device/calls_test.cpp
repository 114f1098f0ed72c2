// Tensors of a GPU as arguments and results.

#include <farad/collectives.h>
#include <farad/future.h>
#include <farad/spawn.h>
#include <farad/worker.h>

#include <functional>
#include <string>
#include <tuple>

#include "unit/device/gpu.h"

namespace farad::test {
namespace {

using at::Tensor;

Tensor echo(Tensor x) { return x; }
/// Where it was, and what it was, as the callee's current stream sees it.
std::tuple<std::string, double> look_at(Tensor x) { return {x.device().str(), x.sum().item<double>()}; }
Tensor slowly_plus_one(Tensor x) {
  keep_busy();
  return x + 1;
}
Tensor product_on_gpu(Tensor a, Tensor b) { return at::mm(a.to(gpu), b.to(gpu)).cpu(); }
Tensor ones_on_gpu(int64_t n) { return at::ones({n}, on_gpu()); }

/// Of two workers of this process, the first does it.
void as_caller(const std::string& transport, const std::function<void(Worker&)>& does) {
  WorkerOptions options;
  options.transport = transport;
  spawn_threads(
      2,
      [&](Worker& worker) {
        if (worker.rank() == 0) does(worker);
        worker.close();
      },
      options);
}

class CallsWithGpu : public NeedsGpu, public testing::WithParamInterface<std::string> {
 protected:
  void as_caller(const std::function<void(Worker&)>& does) { test::as_caller(GetParam(), does); }
};

INSTANTIATE_TEST_SUITE_P(, CallsWithGpu, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(CallsWithGpu, TensorsComeBackWithTheirValuesDtypeAndDevice) {
  as_caller([](Worker& worker) {
    for (const auto type :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kBool, at::kComplexFloat}) {
      const auto sent = at::randn({17, 33}, on_gpu()).mul(100).to(type);
      const auto back = worker.rpc_sync<echo>("worker1", sent);
      EXPECT_EQ(back.device(), gpu) << type;
      EXPECT_EQ(back.scalar_type(), type);
      EXPECT_TRUE(at::equal(back, sent)) << type;
      EXPECT_NE(back.data_ptr(), sent.data_ptr());
    }
  });
}

TEST_P(CallsWithGpu, LargeEmptyStridedAndSparseTensorsComeBack) {
  as_caller([](Worker& worker) {
    const auto base = at::randn({300, 700}, on_gpu());
    for (const auto& sent : {at::randn({1 << 22}, on_gpu()), at::empty({0, 3}, on_gpu()), at::full({}, 2.5, on_gpu()),
                             base.t(), base.slice(1, 3, 600, 7), base.select(0, 4), base[0].expand({5, 700})}) {
      const auto back = worker.rpc_sync<echo>("worker1", sent);
      EXPECT_EQ(back.device(), gpu);
      EXPECT_TRUE(at::equal(back, sent)) << sent.sizes();
    }
    const auto sparse = at::eye(5, on_gpu()).to_sparse();
    const auto back = worker.rpc_sync<echo>("worker1", sparse);
    EXPECT_TRUE(back.is_sparse() && back.device() == gpu);
    EXPECT_TRUE(at::equal(back.to_dense(), sparse.to_dense()));
  });
}

TEST_P(CallsWithGpu, RequiresGradTravels) {
  as_caller([](Worker& worker) {
    EXPECT_TRUE(worker.rpc_sync<echo>("worker1", at::ones({3}, on_gpu()).requires_grad_()).requires_grad());
    EXPECT_FALSE(worker.rpc_sync<echo>("worker1", at::ones({3}, on_gpu())).requires_grad());
  });
}

TEST_P(CallsWithGpu, WhatASideStreamIsStillComputingArrivesComputed) {
  as_caller([](Worker& worker) {
    auto sent = at::zeros({1 << 20}, on_gpu());
    wait_for_gpu();
    const c10::StreamGuard aside(side_stream());
    keep_busy();
    sent.fill_(1);
    EXPECT_EQ(worker.rpc_sync<look_at>("worker1", sent), std::tuple("cuda:0", double(1 << 20)));
  });
}

TEST_P(CallsWithGpu, WhatTheCalleeIsStillComputingArrivesComputed) {
  as_caller([](Worker& worker) {
    const c10::StreamGuard aside(side_stream());
    const auto back = worker.rpc_sync<slowly_plus_one>("worker1", at::ones({1 << 20}, on_gpu()));
    EXPECT_EQ(back.sum().item<double>(), 2 << 20);
  });
}

TEST_P(CallsWithGpu, MemoryOfAResultIsNotUsedAgainWhileAnotherStreamReadsIt) {
  as_caller([](Worker& worker) {
    const auto stream = side_stream();
    auto read = at::zeros({}, on_gpu());
    {
      const c10::StreamGuard aside(stream);
      const auto result = worker.rpc_async<ones_on_gpu>("worker1", int64_t{1} << 20).wait();
      keep_busy();
      read = result.sum();
    }
    // The result is gone here, but not there, where it has yet to be read. Others of its size come.
    for (int i = 0; i < 4; i++) worker.rpc_sync<echo>("worker1", at::zeros({1 << 20}, on_gpu()));
    stream.synchronize();
    EXPECT_EQ(read.item<double>(), 1 << 20);
  });
}

TEST_P(CallsWithGpu, ACallerWithoutAnythingOnTheGpuMayCallWhatComputesThere) {
  as_caller([](Worker& worker) {
    const auto a = at::randn({20, 30}), b = at::randn({30, 10});
    const auto back = worker.rpc_sync<product_on_gpu>("worker1", a, b);
    EXPECT_TRUE(back.is_cpu());
    EXPECT_TRUE(at::allclose(back, at::mm(a, b), 1e-3, 1e-3));
  });
}

TEST_P(CallsWithGpu, OperatorsByNameTakeTensorsOfTheGpu) {
  as_caller([](Worker& worker) {
    const auto back = worker.rpc_sync("worker1", "aten::add", {at::ones({3}, on_gpu()), at::ones({3}, on_gpu()), 2});
    EXPECT_TRUE(at::equal(back.toTensor(), at::full({3}, 3.0, on_gpu())));
  });
}

TEST_F(NeedsGpu, CollectivesGiveBackTensorsOfTheGpu) {
  spawn_threads(3, [](Worker& worker) {
    Group group(worker);
    const auto input = at::full({5}, double(worker.rank() + 1), on_gpu()).requires_grad_();
    const auto sum = group.all_reduce(input);
    EXPECT_TRUE(at::equal(sum.detach(), at::full({5}, 6.0, on_gpu())));
    (sum * sum).sum().backward();
    EXPECT_TRUE(at::equal(input.grad(), at::full({5}, 36.0, on_gpu())));  // 3 ranks, 2 * 6 each.
    EXPECT_EQ(group.all_gather(input.detach()).at(2).device(), gpu);
    worker.close();
  });
}

}  // namespace
}  // namespace farad::test
