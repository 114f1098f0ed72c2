// Gradients of operations under a plain backward(), against one process.

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <cmath>
#include <utility>

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
        const auto expected = in_one_process(operation, size);
        workers.each([&](Worker& worker) {
          farad::Group group(worker);
          const int rank = group.rank();
          const auto what = operation.name + " of " + std::to_string(size) + " at " + std::to_string(rank);
          const auto inputs = leaves(operation.inputs(rank, size));
          backward({loss_of(operation.together(group, inputs), rank)}, {}, {}, true);
          const auto first = gradients_of(inputs);
          expect_same(first, expected.first[rank], 1e-12, what);
          clear_gradients(inputs);
          backward({second_loss_of(first, rank)});
          expect_same(gradients_of(inputs), expected.second[rank], 1e-12, what + ", twice");
          clear_gradients(inputs);
        });
      }
    }
  }
}

TEST_P(CollectivesSuite, FormsThatDoNotWaitGiveTheSameResultsAndGradients) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    farad::Group later(worker), now(worker);
    const int rank = now.rank(), next = (rank + 1) % 3, before = (rank + 2) % 3;
    Tensors inputs;
    for (int which = 0; which < 4; ++which) inputs.push_back(numbers({2, 3}, rank, which));
    inputs = leaves(inputs);
    const auto& one = inputs[0];
    const Tensors each(inputs.begin() + 1, inputs.end());

    // All of them are under way before the first is waited for.
    auto reduced = later.all_reduce_async(one, Op::Product);
    auto all = later.all_gather_async(one);
    auto together = later.all_gather_cat_async(one, 1);
    auto share = later.reduce_scatter_async(each, Op::Mean);
    auto swapped = later.all_to_all_async(each);
    auto told = later.broadcast_async(one, 1);
    auto at_root = later.reduce_async(one, 2, Op::Max);
    auto gathered = later.gather_async(one, 0);
    auto dealt = later.scatter_async(each, 1);
    const auto sent = later.send(one, next);
    auto came = later.recv_async(before);
    auto shifted = later.shift_async(one, 2);
    auto over = later.barrier_async();

    const auto gradients_by = [&](const Tensors& results) {
      backward({loss_of(results, rank)});
      const auto gradients = gradients_of(inputs);
      clear_gradients(inputs);
      return gradients;
    };
    const auto expect_alike = [&](const std::string& what, const Tensors& got, const Tensors& waited_for) {
      expect_same(got, waited_for, 0, what);
      expect_same(gradients_by(got), gradients_by(waited_for), 0, what + ", its gradients");
    };
    expect_alike("all_reduce", {reduced.wait()}, {now.all_reduce(one, Op::Product)});
    expect_alike("all_gather", all.wait(), now.all_gather(one));
    expect_alike("all_gather_cat", {together.wait()}, {now.all_gather_cat(one, 1)});
    expect_alike("reduce_scatter", {share.wait()}, {now.reduce_scatter(each, Op::Mean)});
    expect_alike("all_to_all", swapped.wait(), now.all_to_all(each));
    expect_alike("broadcast", {told.wait()}, {now.broadcast(one, 1)});
    expect_alike("reduce", {at_root.wait()}, {now.reduce(one, 2, Op::Max)});
    expect_alike("gather", gathered.wait(), now.gather(one, 0));
    expect_alike("scatter", {dealt.wait()}, {now.scatter(each, 1)});
    const auto sent_now = now.send(one, next);
    expect_alike("send and recv", {sent, came.wait()}, {sent_now, now.recv(before)});
    expect_alike("shift", {shifted.wait()}, {now.shift(one, 2)});
    over.wait();
  });
}

// What the sum of all losses changes by if all inputs move a little is what the gradients say; and of the second
// losses, which are made of the gradients, what theirs say.
TEST_P(CollectivesSuite, GradientsAreThoseThatFiniteDifferencesGive) {
  constexpr double step = 1e-5;
  for (const int size : sizes()) {
    auto workers = start(size);
    auto operations = all_operations(true);
    for (auto& even : all_operations(false)) operations.push_back(std::move(even));
    for (const auto& operation : operations) {
      struct {
        std::atomic<double> first{0}, second{0};
      } slopes, low, high;
      workers.each([&](Worker& worker) {
        farad::Group group(worker);
        const int rank = group.rank();
        Tensors directions;
        for (const auto& input : operation.inputs(rank, size)) {
          directions.push_back(numbers(input.sizes(), rank + 3, static_cast<int>(directions.size()) + 5));
        }
        const auto along = [&](const Tensors& gradients) {
          double slope = 0;
          for (size_t i = 0; i < gradients.size(); ++i) {
            if (gradients[i].defined()) slope += (gradients[i] * directions[i]).sum().item<double>();
          }
          return slope;
        };
        auto inputs = leaves(operation.inputs(rank, size));
        backward({loss_of(operation.together(group, inputs), rank)}, {}, {}, true);
        const auto gradients = gradients_of(inputs);
        slopes.first += along(gradients);
        clear_gradients(inputs);
        backward({second_loss_of(gradients, rank)});
        slopes.second += along(gradients_of(inputs));
        clear_gradients(inputs);
        for (auto* sums : {&low, &high}) {
          auto moved = operation.inputs(rank, size);
          const double by = sums == &high ? step : -step;
          for (size_t i = 0; i < moved.size(); ++i) moved[i].add_(directions[i], by);
          moved = leaves(moved);
          const auto loss = loss_of(operation.together(group, moved), rank);
          sums->first += loss.item<double>();
          backward({loss});
          sums->second += second_loss_of(gradients_of(moved), rank).item<double>();
        }
      });
      const auto what = operation.name + " of " + std::to_string(size);
      const auto expect_slope = [&](double above, double below, double slope) {
        EXPECT_NEAR((above - below) / (2 * step), slope, 1e-7 * (1 + std::abs(slope))) << what;
      };
      expect_slope(high.first, low.first, slopes.first);
      expect_slope(high.second, low.second, slopes.second);
    }
  }
}

TEST_P(CollectivesSuite, ThirdDerivativesReachEveryMemberToo) {
  constexpr int size = 3;
  auto workers = start(size);
  for (const auto& operation : all_operations(true)) {
    // The loss of third order, of all members together, as one process sees it.
    std::vector<Tensors> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(leaves(operation.inputs(rank, size)));
    const auto total = [](const std::vector<Tensors>& parts, const auto& loss) {
      Tensor sum = at::zeros({}, at::kDouble);
      for (int rank = 0; rank < size; ++rank) sum = sum + loss(parts[rank], rank);
      return sum;
    };
    const auto derive = [&](const Tensor& loss, bool further) {
      backward({loss}, {}, {}, further);
      std::vector<Tensors> gradients;
      for (const auto& inputs : all) gradients.push_back(gradients_of(inputs));
      for (const auto& inputs : all) clear_gradients(inputs);
      return gradients;
    };
    const auto first = derive(total(operation.alone(all), loss_of), true);
    const auto second = derive(total(first, second_loss_of), true);
    const auto expected = derive(total(second, second_loss_of), false);

    workers.each([&](Worker& worker) {
      farad::Group group(worker);
      const int rank = group.rank();
      const auto inputs = leaves(operation.inputs(rank, size));
      const auto derive_here = [&](const Tensor& loss, bool further) {
        backward({loss}, {}, {}, further);
        auto gradients = gradients_of(inputs);
        clear_gradients(inputs);
        return gradients;
      };
      const auto once = derive_here(loss_of(operation.together(group, inputs), rank), true);
      const auto twice = derive_here(second_loss_of(once, rank), true);
      expect_same(derive_here(second_loss_of(twice, rank), false), expected[rank], 1e-11, operation.name);
    });
  }
}

TEST_P(CollectivesSuite, ASecondBackwardThatAMemberCannotReachIsRefusedAtOnce) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::ones({2}, at::kDouble).requires_grad_();
    // The last member gives nothing beside it, and so gets no gradient that would lead anywhere.
    const auto y = group.broadcast(group.rank() == 2 ? Tensor() : x, 0);
    backward({y.pow(3).sum()}, {}, {}, true);
    const auto gradient = x.grad();
    x.mutable_grad().reset();
    if (group.rank() < 2) {
      const auto text = message_of<Error>([&] { gradient.sum().backward(); });
      EXPECT_THAT(text, HasSubstr("rank 2 (worker2)"));
      EXPECT_THAT(text, HasSubstr("beside"));
    }
    worker.barrier();
  });
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

TEST_P(CollectivesSuite, AGraphThatIsLetGoOfCountsAsZeroInSecondDerivativesToo) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::ones({2}).requires_grad_();
    auto sum = group.all_reduce(x);
    if (group.rank() == 1) {
      sum.reset();
    } else {
      const auto loss = (sum * sum * (group.rank() + 1)).sum();
      const auto slope = torch::autograd::grad({loss}, {x}, {}, {}, true)[0];
      slope.sum().backward();
      EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 16.))) << x.grad();
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

TEST_P(CollectivesSuite, MembersThatReachOperationsInDifferentOrderEachGetATimeoutThatNamesThem) {
  WorkerOptions options;
  options.rpc_timeout = 1500ms;
  auto workers = start(2, options);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    const int rank = group.rank();
    auto x = at::ones({2}).requires_grad_();
    const Tensors sums{group.all_reduce(x), group.all_reduce(x)};
    const auto text = message_of<Timeout>([&] { sums[rank].sum().backward(); });
    const auto other = std::to_string(1 - rank);
    EXPECT_THAT(text, HasSubstr("backward of all_reduce(Sum, float32 [2]), number " + std::to_string(rank) +
                                " of group {0, 1}: rank " + other + " (worker" + other + ") did not come in 1500 ms"));
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
