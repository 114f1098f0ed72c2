// What DataParallel refuses, and what is left when a backward fails or a member is lost.

#include <farad/autograd.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "suites/data_parallel_suite.h"

namespace farad::test {

using testing::HasSubstr;

TEST_P(DataParallelSuite, ModulesThatDifferAreRefusedEverywhere) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    Net net(0, worker.rank() == 2 ? 6 : 5);
    const auto text = message_of<Error>([&] { DataParallel parallel(net, farad::Group(worker)); });
    EXPECT_THAT(text, HasSubstr("member 0 has parameter \"first.weight\" of Double [5, 3], and member 2 has"));
  });
}

TEST_P(DataParallelSuite, ABackwardThatFailsLeavesNothingBehind) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    Net net;
    DataParallel parallel(net, farad::Group(worker), small_buckets());
    bool fails = true;
    net.first->weight.register_hook([&](Tensor gradient) {
      if (fails) throw std::runtime_error("no gradient today");
      return gradient;
    });
    EXPECT_THROW(loss_of(net, numbers({4, 3}, worker.rank())).backward(), std::exception);
    fails = false;
    for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();
    loss_of(net, numbers({4, 3}, worker.rank())).backward();

    Net alone;
    loss_of(alone, at::cat({numbers({4, 3}, 0), numbers({4, 3}, 1)})).backward();
    EXPECT_TRUE(at::allclose(net.first->weight.grad(), alone.first->weight.grad(), 1e-12, 1e-12));
  });
}

TEST_P(DataParallelSuite, ABackwardThatFailsAtOneMemberFailsThoseOfTheOthersAndTheNextIsInStep) {
  auto workers = start(3);
  Net alone;
  loss_of(alone, at::cat({numbers({4, 3}, 0), numbers({4, 3}, 1), numbers({4, 3}, 2)})).backward();
  workers.each([&](Worker& worker) {
    Net net;
    DataParallel parallel(net, farad::Group(worker), small_buckets());
    const auto loss = [&] { return loss_of(net, numbers({4, 3}, worker.rank())); };
    const auto reset = [&] {
      for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();
    };
    bool fails = false;
    const auto fail = [&](Tensor gradient) {
      if (fails) throw std::runtime_error("no gradient today");
      return gradient;
    };
    net.first->weight.register_hook(fail);  // After buckets have gone out.
    for (const int which : {1, 1, 2}) {
      fails = worker.rank() == which;
      if (fails) {
        EXPECT_THROW(loss().backward(), std::exception);
      } else {
        const auto text = message_of<Aborted>([&] { loss().backward(); });
        EXPECT_THAT(text, HasSubstr("rank " + std::to_string(which)));
        EXPECT_THAT(text, HasSubstr("its backward failed before all gradients were there"));
      }
      reset();
    }
    fails = false;
    loss().backward();
    EXPECT_TRUE(at::allclose(net.first->weight.grad(), alone.first->weight.grad(), 1e-12, 1e-12));

    reset();
    // Before anything has gone out: then only the call of ours can tell.
    auto own = loss();
    if (worker.rank() == 0) {
      own.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("no gradient at all"); });
      EXPECT_THROW(parallel.backward(own), std::exception);
    } else {
      EXPECT_THAT(message_of<Error>([&] { parallel.backward(own); }), HasSubstr("rank 0 (worker0)"));
    }
    reset();
    parallel.backward(loss());
    EXPECT_TRUE(at::allclose(net.first->weight.grad(), alone.first->weight.grad(), 1e-12, 1e-12));
  });
}

TEST_P(DataParallelSuite, BackwardsThatItIsNotForAreRefused) {
  auto workers = start(1);
  auto& worker = workers[0];
  Net net;
  DataParallel parallel(net, farad::Group(worker));
  const auto inputs = numbers({4, 3}, 0);
  const auto recorded = [&] { torch::autograd::backward({loss_of(net, inputs)}, {}, {}, true); };
  EXPECT_THAT(message_of<Error>(recorded), HasSubstr("create_graph"));
  {
    Context context(worker);
    const auto text = message_of<Error>([&] { context.backward({loss_of(net, inputs)}); });
    EXPECT_THAT(text, HasSubstr("plain backwards only"));
  }
  EXPECT_THROW(parallel.set_weight(0), Error);
  const auto quiet = parallel.no_sync();
  recorded();
  for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();  // Each holds the graph that holds it.
}

TEST_P(DataParallelSuite, AHookThatGivesSomethingElseThanTheBucketsSumIsRefused) {
  auto workers = start(2);
  const std::function<Tensor(const Tensor&)> wrongs[] = {
      [](const Tensor& sum) { return sum.narrow(0, 0, 1); },
      [](const Tensor& sum) { return at::cat({sum, sum}); },
      [](const Tensor& sum) { return sum.to(at::kFloat); },
      [](const Tensor&) { return Tensor(); },
  };
  for (const auto& wrong : wrongs) {
    workers.each([&](Worker& worker) {
      Net net;
      DataParallel parallel(net, farad::Group(worker), small_buckets([&](farad::Group& group, const Tensor& bucket) {
                              return sum_bucket(group, bucket).then([&](const Tensor& sum) { return wrong(sum); });
                            }));
      for (auto& parameter : net.parameters()) parameter.mutable_grad() = at::zeros_like(parameter);
      const auto text = message_of<Error>([&] { loss_of(net, numbers({4, 3}, worker.rank())).backward(); });
      EXPECT_THAT(text, HasSubstr("DataParallelOptions::hook gave"));
    });
  }
}

TEST_P(DataParallelSuite, AMemberThatIsLostFailsTheOthersBackward) {
  auto workers = start(3);
  std::atomic<int> ready{0}, told{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Net net;
      DataParallel parallel(net, farad::Group(workers[rank]), small_buckets());
      ++ready;
      if (rank == 1) {
        EXPECT_TRUE(eventually([&] { return ready == 3; }));
        return;
      }
      const auto text = message_of<PeerLost>([&] { loss_of(net, numbers({4, 3}, rank)).backward(); });
      EXPECT_THAT(text, HasSubstr("rank 1 (worker1)"));
      ++told;
    });
  }
  threads[1].join();
  workers.drop(1);
  threads[0].join();
  threads[2].join();
  EXPECT_EQ(told, 2);
}

}  // namespace farad::test
