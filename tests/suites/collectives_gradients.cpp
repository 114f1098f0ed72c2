// Gradients of operations under a plain backward(), against one process.

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "suites/collectives_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using torch::autograd::backward;

}  // namespace

TEST_P(CollectivesSuite, GradientsAreThoseOfTheSumOfAllLosses) {
  for (const int size : sizes()) {
    auto workers = start(size);
    for (const bool uneven : {false, true}) {
      for (const auto& operation : all_operations(uneven)) {
        const bool twice = operation.symmetric;
        const auto expected = in_one_process(operation, size);
        workers.each([&](Worker& worker) {
          farad::Group group(worker);
          const int rank = group.rank();
          const auto what = operation.name + " of " + std::to_string(size) + " at " + std::to_string(rank);
          const auto inputs = leaves(operation.inputs(rank, size));
          backward({loss_of(operation.together(group, inputs), rank)}, {}, {}, twice);
          const auto first = gradients_of(inputs);
          expect_same(first, expected.first[rank], 1e-12, what);
          if (!twice) return;
          clear_gradients(inputs);
          backward({second_loss_of(first, rank)});
          expect_same(gradients_of(inputs), expected.second[rank], 1e-12, what + ", twice");
          clear_gradients(inputs);
        });
      }
    }
  }
}

// <A x, y> = <x, A* y>, of every operation that is linear: whatever the weights, of which the loss makes y.
TEST_P(CollectivesSuite, AdjointsMoveAcrossTheDotProduct) {
  constexpr int size = 4;
  auto workers = start(size);
  for (const auto& operation : all_operations(true)) {
    if (operation.name.ends_with("Max") || operation.name.ends_with("Min") || operation.name.ends_with("Product")) {
      continue;
    }
    std::vector<double> forward(size), adjoint(size);
    workers.each([&](Worker& worker) {
      farad::Group group(worker);
      const int rank = group.rank();
      const auto inputs = leaves(operation.inputs(rank, size));
      const auto results = operation.together(group, inputs);
      Tensor product = at::zeros({}, at::kDouble);
      for (size_t i = 0; i < results.size(); ++i) {
        product = product + (results[i] * numbers(results[i].sizes(), rank + 7, static_cast<int>(i))).sum();
      }
      forward[rank] = product.item<double>();
      backward({product});
      for (const auto& input : inputs) {
        if (input.grad().defined()) adjoint[rank] += (input.detach() * input.grad()).sum().item<double>();
      }
    });
    EXPECT_NEAR(forward[0] + forward[1] + forward[2] + forward[3], adjoint[0] + adjoint[1] + adjoint[2] + adjoint[3],
                1e-12)
        << operation.name;
  }
}

TEST_P(CollectivesSuite, TiesShareTheirGradientAndZerosKeepTheirs) {
  constexpr int size = 3;
  auto workers = start(size);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    const int rank = group.rank();
    // All three tie, then the first two, then nobody.
    const double values[3][3] = {{1, 2, 3}, {1, 2, 1}, {1, 0, 2}};
    auto x = at::tensor(at::ArrayRef<double>(values[rank])).requires_grad_();
    group.all_reduce(x, Op::Max).sum().backward();
    const double shares[3][3] = {{1, 1.5, 3}, {1, 1.5, 0}, {1, 0, 0}};
    EXPECT_TRUE(at::allclose(x.grad(), at::tensor(at::ArrayRef<double>(shares[rank])))) << x.grad();

    const double factors[3][3] = {{0, 0, 2}, {3, 0, 3}, {4, 5, 4}};
    auto y = at::tensor(at::ArrayRef<double>(factors[rank])).requires_grad_();
    group.all_reduce(y, Op::Product).sum().backward();
    const double others[3][3] = {{12, 0, 12}, {0, 0, 8}, {0, 0, 6}};
    EXPECT_TRUE(at::allclose(y.grad(), 3 * at::tensor(at::ArrayRef<double>(others[rank])))) << y.grad();
  });
}

TEST_P(CollectivesSuite, OnlySomeInputsOrMembersNeedGradients) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    const int rank = group.rank();
    // Only the first member's input requires one; all use it.
    auto x = at::full({2}, double(rank + 1)).requires_grad_(rank == 0);
    auto all = group.all_gather(x);
    (all[0] * (rank + 1)).sum().backward();
    if (rank == 0) {
      EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 6.)));
    }
    // One member does not record at all, and the others do not wait for it.
    auto y = at::ones({2}).requires_grad_();
    Tensor sum;
    {
      const c10::AutoGradMode mode(rank != 1);
      sum = group.all_reduce(y);
    }
    EXPECT_EQ(sum.requires_grad(), rank != 1);
    if (rank != 1) {
      sum.sum().backward();
      EXPECT_TRUE(at::equal(y.grad(), at::full({2}, 2.)));
    }
    // What nobody differentiates has no history.
    EXPECT_FALSE(group.all_reduce(at::ones({2})).requires_grad());
    EXPECT_EQ(group.broadcast(at::ones({2}).requires_grad_(rank == 1), 1).requires_grad(), true);
    EXPECT_EQ(group.broadcast(at::ones({2}).requires_grad_(rank == 1), 0).requires_grad(), false);
  });
}

TEST_P(CollectivesSuite, AGraphThatIsLetGoOfCountsAsZero) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::ones({2}).requires_grad_();
    auto sum = group.all_reduce(x);
    if (group.rank() == 1) {
      sum.reset();  // Others wait for its gradient, or will.
    } else {
      (sum * (group.rank() + 1)).sum().backward();
      EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 4.)));
    }
    group.barrier();
  });
}

TEST_P(CollectivesSuite, ABackwardThatAMemberDoesNotReachEndsInATimeoutThatNamesIt) {
  WorkerOptions options;
  options.rpc_timeout = 1500ms;
  auto workers = start(2, options);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::ones({2}).requires_grad_();
    auto sum = group.all_reduce(x);
    if (group.rank() == 0) {
      const auto text = message_of<Timeout>([&] { sum.sum().backward(); });
      EXPECT_THAT(text, HasSubstr("backward of all_reduce(Sum, float32 [2]), number 0 of group {0, 1}: rank 1"));
    }
    worker.barrier();
  });
}

TEST_P(CollectivesSuite, RetainedGraphsMeetAgainAndTheMeanIsAskedForByName) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::full({}, 3., at::kDouble).requires_grad_();
    auto loss = mean_over(group, group.all_reduce(x).pow(2));
    loss.backward({}, true);
    EXPECT_DOUBLE_EQ(x.grad().item<double>(), 12);
    loss.backward();
    EXPECT_DOUBLE_EQ(x.grad().item<double>(), 24);
  });
}

}  // namespace farad::test
