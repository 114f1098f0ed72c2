// Backward passes and optimizers over workers whose tensors lie on a GPU, against one process.

#include <farad/autograd.h>
#include <farad/optim.h>
#include <farad/rref.h>
#include <farad/spawn.h>
#include <farad/worker.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/sgd.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "unit/device/gpu.h"

namespace farad::test {
namespace {

using at::Tensor;

/// A layer at another worker; it may slow down, so that whoever does not wait for a stream is seen to.
Tensor layer(Tensor weight, Tensor x) { return at::tanh(at::mm(x, weight)); }
Tensor slow_layer(Tensor weight, Tensor x) {
  keep_busy();
  return layer(weight, x);
}
/// Goes on at a third worker, and comes back by way of the host.
Tensor by_the_third(Tensor weight, Tensor x) {
  const auto there = Worker::current().rpc_sync<slow_layer>("worker2", weight, x);
  return (there * there).to(at::kCPU);
}
Tensor make_weight() { return at::full({8, 8}, 0.25, on_gpu(at::kDouble)).requires_grad_(); }
Tensor apply(Tensor& weight, Tensor x) { return layer(weight, x); }
Tensor value_of(Tensor& parameter) { return parameter.detach(); }

struct Leaves {
  Tensor first, second, input;
};

Leaves make_leaves() {
  const auto make = [](int64_t rows, double start) {
    return (at::arange(start, start + double(rows * 8), at::kDouble).view({rows, 8}) / 100)
        .sin()
        .to(gpu)
        .requires_grad_();
  };
  return {make(8, 1), make(8, 7), make(4, 3)};
}

/// What the distributed program computes, here.
Tensor loss_of(const Leaves& leaves) {
  const auto hidden = layer(leaves.first, leaves.input);
  const auto far = layer(leaves.second, hidden);
  return ((far * far).cpu().sum() + hidden.sum().cpu()).mul(3);
}

Tensor loss_over_workers(Worker& worker, const Leaves& leaves) {
  const auto hidden = worker.rpc_sync<layer>("worker1", leaves.first, leaves.input);
  const auto far = worker.rpc_sync<by_the_third>("worker1", leaves.second, hidden);
  return (far.sum() + hidden.sum().cpu()).mul(3);
}

using Way = std::tuple<Mode, bool, std::string>;  // how, whether in a side stream, transport

class GradientsOnGpu : public NeedsGpu, public testing::WithParamInterface<Way> {
 public:
  static std::string name(const testing::TestParamInfo<Way>& info) {
    const auto& [mode, aside, transport] = info.param;
    return std::string(mode == Mode::Smart ? "Smart" : "Fast") + (aside ? "Aside" : "") + "By" + transport;
  }
};

INSTANTIATE_TEST_SUITE_P(, GradientsOnGpu,
                         testing::Combine(testing::Values(Mode::Smart, Mode::Fast), testing::Bool(),
                                          testing::Values("local", "tcp")),
                         GradientsOnGpu::name);

TEST_P(GradientsOnGpu, AreThoseOfOneProcess) {
  const auto [mode, aside, transport] = GetParam();
  WorkerOptions options;
  options.transport = transport;
  spawn_threads(
      3,
      [mode = mode, aside = aside](Worker& worker) {
        if (worker.rank() == 0) {
          const auto here = make_leaves(), there = make_leaves();
          wait_for_gpu();
          std::optional<c10::StreamGuard> stream;
          if (aside) stream.emplace(side_stream());
          loss_of(here).backward();
          Context context(worker);
          const auto loss = loss_over_workers(worker, there);
          keep_busy();
          BackwardOptions how;
          how.mode = mode;
          context.backward({loss}, how);
          for (const auto& [one, other] : {std::pair(here.first, there.first), std::pair(here.second, there.second),
                                           std::pair(here.input, there.input)}) {
            const auto gradient = context.gradient(other);
            ASSERT_TRUE(gradient.defined());
            EXPECT_EQ(gradient.device(), gpu);
            EXPECT_TRUE(at::allclose(gradient, one.grad(), 1e-10, 1e-12));
            EXPECT_FALSE(other.grad().defined());
          }
        }
        worker.close();
      },
      options);
}

/// Doubles a gradient after a while, as a hook of a leaf.
Tensor slowly_doubled(const Tensor& gradient) {
  keep_busy();
  return gradient * 2;
}

TEST_F(NeedsGpu, AGradientMayBeReadInAnotherStreamThanItIsComputedIn) {
  spawn_threads(1, [](Worker& worker) {
    Context context(worker);
    Tensor leaf, loss;
    {
      const c10::StreamGuard forward(side_stream());
      leaf = at::ones({1 << 20}, on_gpu()).requires_grad_();
      leaf.register_hook(slowly_doubled);
      loss = leaf.sum();
    }
    for (int pass = 1; pass <= 2; pass++) {
      context.backward({loss}, {.retain_graph = true});
      EXPECT_EQ(context.gradient(leaf).sum().item<double>(), pass * (2 << 20));
    }
    EXPECT_EQ(grad(context, {loss}, {leaf}).at(0).sum().item<double>(), 2 << 20);
    worker.close();
  });
}

TEST_F(NeedsGpu, ANodeWaitsForOneOfAnotherStream) {
  spawn_threads(1, [](Worker& worker) {
    Context context(worker);
    const auto first = side_stream(), second = side_stream();
    Tensor leaf, between, loss;
    {
      const c10::StreamGuard forward(first);
      leaf = at::ones({1 << 20}, on_gpu()).requires_grad_();
      between = leaf * 2;
    }
    first.synchronize();
    {
      const c10::StreamGuard forward(second);
      const auto last = between * 3;
      last.register_hook(slowly_doubled);  // In the second stream, and what it gives goes on in the first.
      loss = (last + between).sum();
    }
    // The first pass allocates memory, for which CUDA waits by itself; the second takes it as it is, with old values.
    for (const double scale : {1, 10}) {
      const auto gradient = at::full({}, scale, on_gpu());
      wait_for_gpu();
      EXPECT_EQ(
          grad(context, {loss}, {leaf}, {.grad_tensors = {gradient}, .retain_graph = true}).at(0).max().item<double>(),
          scale * (2 * 3 * 2 + 2));
    }
    worker.close();
  });
}

TEST_F(NeedsGpu, GradientsOfGradientsAreThoseOfOneProcess) {
  spawn_threads(2, [](Worker& worker) {
    if (worker.rank() == 0) {
      const auto leaves = make_leaves();
      const auto twice = [&](const Tensor& y, const auto& differentiate) {
        const auto first = differentiate(y.sum(), true);
        return differentiate((first * first).sum(), false);
      };
      const auto expected = twice(layer(leaves.first, leaves.input), [&](const Tensor& y, bool graph) {
        return torch::autograd::grad({y}, {leaves.first}, {}, true, graph)[0];
      });
      Context context(worker);
      const auto got =
          twice(worker.rpc_sync<layer>("worker1", leaves.first, leaves.input), [&](const Tensor& y, bool graph) {
            BackwardOptions how;
            how.create_graph = graph;
            return grad(context, {y}, {leaves.first}, how)[0];
          });
      EXPECT_TRUE(at::allclose(got, expected, 1e-10, 1e-12));
    }
    worker.close();
  });
}

TEST_F(NeedsGpu, OptimizerStepsParametersOnTheGpu) {
  spawn_threads(3, [](Worker& worker) {
    if (worker.rank() == 0) {
      const auto input = make_leaves().input.detach();
      auto one = make_weight(), two = make_weight();
      torch::optim::SGD here({one, two}, torch::optim::SGDOptions(0.1).momentum(0.9));
      const auto far_one = worker.remote<make_weight>("worker1"), far_two = worker.remote<make_weight>("worker2");
      DistributedOptimizer<torch::optim::SGD> there(worker, {far_one, far_two},
                                                    torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 3; step++) {
        here.zero_grad();
        layer(two, layer(one, input)).sum().backward();
        here.step();
        Context context(worker);
        context.backward({far_two.rpc_sync<apply>(far_one.rpc_sync<apply>(input)).sum()});
        EXPECT_GT(there.clip_grad_norm(context, 1e6), 0);
        there.step(context);
      }
      EXPECT_TRUE(at::allclose(far_one.rpc_sync<value_of>(), one.detach(), 1e-10, 1e-12));
      EXPECT_TRUE(at::allclose(far_two.rpc_sync<value_of>(), two.detach(), 1e-10, 1e-12));
    }
    worker.close();
  });
}

}  // namespace
}  // namespace farad::test
