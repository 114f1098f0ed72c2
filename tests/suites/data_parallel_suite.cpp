// The same module at every member: what a step does, against one process that has all inputs.

#include "suites/data_parallel_suite.h"

#include <c10/core/GradMode.h>
#include <farad/checkpoint.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <functional>

namespace farad::test {

Tensor numbers(at::IntArrayRef shape, int seed) {
  const auto count = c10::multiply_integers(shape);
  return at::arange(count, at::kDouble).mul(0.7).add(1.3 * seed + 0.5).sin().reshape(shape);
}

Net::Net(int seed, int64_t width) : first(3, width), second(width, width), third(width, 2) {
  register_module("first", first);
  register_module("second", second);
  register_module("third", third);
  to(at::kDouble);
  const c10::NoGradGuard no_grad;
  for (auto& parameter : parameters()) parameter.copy_(numbers(parameter.sizes(), ++seed) * 0.4);
}

Tensor Net::forward(const Tensor& x) { return third(at::tanh(second(at::tanh(first(x))))); }

Tensor loss_of(Net& net, const Tensor& inputs) { return (net.forward(inputs) - 0.3).pow(2).mean(); }

DataParallelOptions small_buckets(BucketHook hook) { return {200, std::move(hook)}; }

namespace {

torch::optim::SGD optimizer_of(Net& net) {
  return torch::optim::SGD(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

void step(Net& net, torch::optim::SGD& optimizer, const std::function<Tensor()>& loss) {
  for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();
  loss().backward();
  optimizer.step();
}

void expect_equal(Net& one, Net& other, double tolerance, const std::string& what) {
  const auto left = one.named_parameters();
  const auto right = other.named_parameters();
  for (const auto& item : left) {
    EXPECT_TRUE(at::allclose(item.value(), right[item.key()], tolerance, tolerance)) << what << ": " << item.key();
  }
}

/// The same, but the layers that backward comes to first are computed again, each by a backward of its own within it.
Tensor checkpointed_loss_of(Net& net, const Tensor& inputs) {
  const auto first = net.first(inputs);
  const auto second = checkpoint([&net](const Tensor& x) { return net.second(at::tanh(x)); }, first);
  const auto third = checkpoint([&net](const Tensor& x) { return net.third(at::tanh(x)); }, second);
  return (third - 0.3).pow(2).mean();
}

/// Each member has another number of batches, and joins; against one process, which sees those that are left.
void expect_the_same_when_inputs_run_out(Group& workers, Tensor (&loss)(Net&, const Tensor&)) {
  const int size = workers.size();
  const auto batches = [](int rank) { return 1 + (rank * 2) % 5; };
  const auto batch = [](int rank, int at) { return numbers({3, 3}, 10 * rank + at); };
  Net alone;
  auto optimizer = optimizer_of(alone);
  for (int at = 0;; ++at) {
    std::vector<Tensor> left;
    for (int rank = 0; rank < size; ++rank) {
      if (at < batches(rank)) left.push_back(batch(rank, at));
    }
    if (left.empty()) break;
    step(alone, optimizer, [&] { return loss_of(alone, at::cat(left)); });
  }
  workers.each([&](Worker& worker) {
    Net net;
    DataParallel parallel(net, farad::Group(worker), small_buckets());
    auto mine = optimizer_of(net);
    for (int at = 0; at < batches(worker.rank()); ++at) {
      step(net, mine, [&] { return loss(net, batch(worker.rank(), at)); });
    }
    parallel.join([&] { mine.step(); });
    expect_equal(net, alone, 1e-12, std::to_string(size) + " at " + std::to_string(worker.rank()));
    // And it goes on with all.
    loss(net, batch(worker.rank(), 0)).backward();
  });
}

}  // namespace

TEST_P(DataParallelSuite, TrainsLikeOneProcessOnTheWholeBatch) {
  for (const int size : sizes()) {
    for (const bool uneven : {false, true}) {
      const auto rows = [&](int rank) { return uneven ? 2 + rank : 4; };
      constexpr int steps = 4;
      const auto batch = [&](int rank, int at) { return numbers({rows(rank), 3}, 10 * rank + at); };
      Net alone(0);
      auto optimizer = optimizer_of(alone);
      for (int at = 0; at < steps; ++at) {
        std::vector<Tensor> all;
        for (int rank = 0; rank < size; ++rank) all.push_back(batch(rank, at));
        step(alone, optimizer, [&] { return loss_of(alone, at::cat(all)); });
      }
      auto workers = start(size);
      workers.each([&](Worker& worker) {
        Net net(worker.rank());  // Each begins with its own, and then has that of the first.
        DataParallel parallel(net, farad::Group(worker), small_buckets());
        if (uneven) parallel.set_weight(rows(worker.rank()));
        auto mine = optimizer_of(net);
        for (int at = 0; at < steps; ++at) {
          step(net, mine, [&] { return loss_of(net, batch(worker.rank(), at)); });
        }
        expect_equal(net, alone, 1e-12, std::to_string(size) + " at " + std::to_string(worker.rank()));
      });
    }
  }
}

TEST_P(DataParallelSuite, ParametersAndBuffersBecomeThoseOfTheFirstMember) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    torch::nn::BatchNorm1d norm(4);
    {
      const c10::NoGradGuard no_grad;
      norm->weight.fill_(worker.rank() + 5);
      norm->bias.requires_grad_(false).fill_(worker.rank() + 6);  // One that does not learn, too.
      norm->running_mean.fill_(worker.rank() + 7);
    }
    DataParallel parallel(norm, farad::Group(worker));
    EXPECT_TRUE(norm->weight.eq(5).all().item<bool>());
    EXPECT_TRUE(norm->bias.eq(6).all().item<bool>());
    EXPECT_TRUE(norm->running_mean.eq(7).all().item<bool>());
    norm->running_mean.fill_(worker.rank() + 8);
    parallel.broadcast_buffers();
    EXPECT_TRUE(norm->running_mean.eq(8).all().item<bool>());
  });
}

TEST_P(DataParallelSuite, ParametersThatALossHasNoPartInAreFound) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    Net net;
    DataParallel parallel(net, farad::Group(worker), small_buckets());
    // One member uses the first layer, the other the second; none the third.
    const auto& mine = worker.rank() == 0 ? net.first : net.second;
    for (int round = 0; round < 2; ++round) {
      for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();
      (mine->weight * 3).sum().backward();
      EXPECT_TRUE(at::equal(net.first->weight.grad(), at::full_like(net.first->weight, 1.5)));
      EXPECT_TRUE(at::equal(net.second->weight.grad(), at::full_like(net.second->weight, 1.5)));
      EXPECT_FALSE(net.first->bias.grad().defined());
      EXPECT_FALSE(net.third->weight.grad().defined());
    }
  });
}

TEST_P(DataParallelSuite, NobodyWaitsUntilGradientsHaveGathered) {
  auto workers = start(2);
  Net alone;
  const auto total = [&] {
    // Member 0 has three batches and member 1 one; each counts its sum.
    Tensor loss = at::zeros({}, at::kDouble);
    for (const int seed : {1, 2, 3, 4}) loss = loss + loss_of(alone, numbers({4, 3}, seed)) / 2;
    return loss;
  }();
  total.backward();
  workers.each([&](Worker& worker) {
    Net net;
    DataParallel parallel(net, farad::Group(worker), small_buckets());
    if (worker.rank() == 0) {
      const auto quiet = parallel.no_sync();
      for (const int seed : {1, 2}) loss_of(net, numbers({4, 3}, seed)).backward();  // The other has no such backward.
    }
    loss_of(net, numbers({4, 3}, worker.rank() == 0 ? 3 : 4)).backward();
    const auto expected = alone.named_parameters();
    for (const auto& item : net.named_parameters()) {
      EXPECT_TRUE(at::allclose(item.value().grad(), expected[item.key()].grad(), 1e-12, 1e-12)) << item.key();
    }
  });
}

TEST_P(DataParallelSuite, MembersMayRunOutOfInputsAtDifferentTimes) {
  for (const int size : sizes()) {
    auto workers = start(size);
    expect_the_same_when_inputs_run_out(workers, loss_of);
  }
}

TEST_P(DataParallelSuite, ABackwardWithCheckpointsIsOneForThoseThatHaveJoined) {
  auto workers = start(3);
  expect_the_same_when_inputs_run_out(workers, checkpointed_loss_of);
}

TEST_P(DataParallelSuite, ABackwardThatFailsAfterACheckpointsIsHeardOfByTheOthers) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    Net net;
    DataParallel parallel(net, farad::Group(worker), small_buckets());
    const bool fails = worker.rank() == 1;
    const auto hook = net.first->weight.register_hook([&](Tensor gradient) {
      if (fails) throw std::runtime_error("no gradient today");
      return gradient;
    });
    const auto act = [&] { checkpointed_loss_of(net, numbers({4, 3}, worker.rank())).backward(); };
    if (fails) {
      EXPECT_THROW(act(), std::exception);
    } else {
      EXPECT_THAT(message_of<Aborted>(act), testing::HasSubstr("its backward failed before all gradients were there"));
    }
    net.first->weight.remove_hook(hook);
    for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();
    checkpointed_loss_of(net, numbers({4, 3}, worker.rank())).backward();
    Net alone;
    loss_of(alone, at::cat({numbers({4, 3}, 0), numbers({4, 3}, 1)})).backward();
    EXPECT_TRUE(at::allclose(net.third->weight.grad(), alone.third->weight.grad(), 1e-12, 1e-12));
  });
}

TEST_P(DataParallelSuite, BucketsMayTravelInSixteenBits) {
  auto workers = start(3);
  Net alone;
  std::vector<Tensor> all;
  for (int rank = 0; rank < 3; ++rank) all.push_back(numbers({4, 3}, rank));
  loss_of(alone, at::cat(all)).backward();
  const auto expected = alone.named_parameters();
  for (const bool half : {true, false}) {
    const auto hook = half ? sum_bucket_as_half : sum_bucket_as_bfloat16;
    const double tolerance = half ? 2e-3 : 2e-2;
    workers.each([&](Worker& worker) {
      Net net;
      std::atomic<int> buckets{0};
      DataParallel parallel(net, farad::Group(worker), small_buckets([&](farad::Group& group, Tensor bucket) {
                              ++buckets;
                              return hook(group, std::move(bucket));
                            }));
      loss_of(net, all[worker.rank()]).backward();
      EXPECT_GT(buckets, 1);
      bool rounded = false;
      for (const auto& item : net.named_parameters()) {
        const auto& exact = expected[item.key()].grad();
        EXPECT_EQ(item.value().grad().scalar_type(), at::kDouble);
        EXPECT_TRUE(at::allclose(item.value().grad(), exact, tolerance, tolerance * 0.1)) << item.key();
        rounded = rounded || !at::allclose(item.value().grad(), exact, 1e-9, 1e-9);
      }
      EXPECT_TRUE(rounded);
    });
  }
}

TEST_P(DataParallelSuite, BucketsGoOutWhileBackwardGoesOn) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    Net net;
    std::atomic<int> sent{0};
    DataParallel parallel(net, farad::Group(worker), small_buckets([&](farad::Group& group, Tensor bucket) {
                            ++sent;
                            return sum_bucket(group, std::move(bucket));
                          }));
    int before_the_last = -1;
    net.first->weight.register_hook([&](Tensor gradient) {
      before_the_last = sent;
      return gradient;
    });
    loss_of(net, numbers({4, 3}, worker.rank())).backward();
    EXPECT_GT(before_the_last, 0);
    EXPECT_GT(sent, before_the_last);
  });
}

TEST_P(DataParallelSuite, ALossThatReachesNoParameterCountsAsZero) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    Net net;
    DataParallel parallel(net, farad::Group(worker), small_buckets());
    for (const bool has_gradient : {false, true}) {
      for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();
      parallel.backward(worker.rank() == 0 ? (net.first->weight * 3).sum()
                                           : at::ones({}, at::kDouble).set_requires_grad(has_gradient));
      EXPECT_TRUE(at::equal(net.first->weight.grad(), at::full_like(net.first->weight, 1.5)));
      EXPECT_FALSE(net.third->weight.grad().defined());
    }
  });
}

TEST_P(DataParallelSuite, LargeWeightsDoNotLeaveTheRangeOfSixteenBits) {
  auto workers = start(2);
  for (const double scale : {3e7, 1e-9}) {
    workers.each([&](Worker& worker) {
      Net net;
      DataParallel parallel(net, farad::Group(worker), small_buckets(sum_bucket_as_half));
      parallel.set_weight((1 + 2 * worker.rank()) * scale);
      (net.first->weight * (worker.rank() == 0 ? 4 : 8)).sum().backward();
      EXPECT_TRUE(at::allclose(net.first->weight.grad(), at::full_like(net.first->weight, 7), 2e-3, 0)) << scale;
    });
  }
}

TEST_P(DataParallelSuite, AnEndedOneLeavesGradientsAlone) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    Net net;
    {
      DataParallel parallel(net, farad::Group(worker));
    }
    if (worker.rank() == 0) loss_of(net, numbers({4, 3}, 0)).backward();  // Nobody is waited for.
  });
}

INSTANTIATE_TEST_SUITE_P(Each, DataParallelSuite, testing::Values("local", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace farad::test
