// Gradients of operations in passes of contexts: each member has its own, or all are in one.

#include <farad/autograd.h>

#include <mutex>

#include "suites/collectives_suite.h"

namespace farad::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Tensor scaled(Tensor x, double factor) { return x * factor; }

/// Runs at every worker in the caller's context: takes part with a leaf of its own, which stays there.
class Kept {
 public:
  void set(int rank, Tensor leaf) {
    const std::lock_guard lock(mutex_);
    leaves_[rank] = std::move(leaf);
  }
  Tensor leaf(int rank) {
    const std::lock_guard lock(mutex_);
    return leaves_.at(rank);
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    leaves_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<int, Tensor> leaves_;
};
Kept kept;

Tensor sum_with_own(Tensor x) {
  farad::Group group(Worker::current());
  auto own = at::full({2}, double(group.rank() + 1), at::kDouble).requires_grad_();
  kept.set(group.rank(), own);
  return group.all_reduce(own * x);
}

Tensor ship(Tensor x) { return farad::Group(Worker::current()).send(x * 2, 1); }
Tensor unload() { return farad::Group(Worker::current()).recv(0); }

}  // namespace

TEST_P(CollectivesSuite, PassesOfContextsGiveTheGradientsOfTheSumOfAllLosses) {
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
          // A loss must lead somewhere, also where a member has no part in the result.
          const auto anchor = at::zeros({}, at::kDouble).requires_grad_();
          Context context(worker);
          const auto loss = loss_of(operation.together(group, inputs), rank) + anchor;
          const auto first = grad(context, {loss}, inputs, {.create_graph = true});
          expect_same(first, expected.first[rank], 1e-12, what);
          const auto second = grad(context, {second_loss_of(first, rank) + anchor}, inputs);
          expect_same(second, expected.second[rank], 1e-12, what + ", twice");
        });
      }
    }
  }
}

TEST_P(CollectivesSuite, DrawingsDoNotTakeAnOperationForALoss) {
  auto workers = start(2);
  workers.each([&](Worker& worker) {
    farad::Group group(worker);
    const auto x = at::ones({2}, at::kDouble).requires_grad_();
    Context context(worker);
    const auto y = group.all_reduce(x.exp());
    EXPECT_THAT(context.dot(), AllOf(HasSubstr("ExpBackward0\"]"), Not(HasSubstr("(0)"))));
    EXPECT_THAT(context.dot({y.sum()}), AllOf(HasSubstr("SumBackward0 (0)"), HasSubstr("ExpBackward0 (")));
    EXPECT_THAT(context.dot({x.sum()}), HasSubstr("ExpBackward0\", color=grey"));
  });
}

TEST_P(CollectivesSuite, PassesInFastModeGiveTheSame) {
  constexpr int size = 3;
  auto workers = start(size);
  for (const auto& operation : all_operations(true)) {
    const auto expected = in_one_process(operation, size);
    workers.each([&](Worker& worker) {
      farad::Group group(worker);
      const int rank = group.rank();
      const auto inputs = leaves(operation.inputs(rank, size));
      const auto anchor = at::zeros({}, at::kDouble).requires_grad_();
      Context context(worker);
      const auto loss = loss_of(operation.together(group, inputs), rank) + anchor;
      const auto first = grad(context, {loss}, inputs, {.create_graph = true, .mode = Mode::Fast});
      expect_same(first, expected.first[rank], 1e-12, operation.name);
      const auto second = grad(context, {second_loss_of(first, rank) + anchor}, inputs, {.mode = Mode::Fast});
      expect_same(second, expected.second[rank], 1e-12, operation.name + ", twice");
    });
  }
}

TEST_P(CollectivesSuite, CallsAndOperationsMixInFastMode) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::full({2}, double(group.rank() + 1), at::kDouble).requires_grad_();
    Context context(worker);
    // A call's result goes through an operation, and the operation's through a call.
    const auto sum = group.all_reduce(worker.rpc_sync<scaled>(1 - group.rank(), x, 3.));
    context.backward({worker.rpc_sync<scaled>(1 - group.rank(), sum, 5.).sum()}, {.mode = Mode::Fast});
    EXPECT_TRUE(at::equal(context.gradient(x), at::full({2}, 2. * 15, at::kDouble))) << context.gradient(x);
    worker.barrier();
  });
}

TEST_P(CollectivesSuite, WhatAPassDoesNotReachCountsAsZeroAndSoDoesAContextThatEnds) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    const int rank = group.rank();
    auto x = at::ones({2}, at::kDouble).requires_grad_();
    {
      Context context(worker);
      auto a = group.all_reduce(x);
      auto b = group.all_reduce(x * 3);
      if (rank == 0) context.backward({a.sum()});
      if (rank == 1) context.backward({(b * 10).sum()});
      if (rank != 2) {
        EXPECT_TRUE(at::equal(context.gradient(x), at::full({2}, 31., at::kDouble))) << context.gradient(x);
      }
    }  // The third ends without a pass.
    group.barrier();
  });
}

TEST_P(CollectivesSuite, APassLeavesTheGraphBehindAnOperationThatNobodyReachesAlone) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::ones({2}, at::kDouble).requires_grad_();
    Context context(worker);
    auto a = group.all_reduce(x * x);
    auto b = group.all_reduce(x * x * x);
    context.backward({a.sum()});
    EXPECT_TRUE(at::equal(context.gradient(x), at::full({2}, 4., at::kDouble))) << context.gradient(x);
    context.backward({b.sum()});
    EXPECT_TRUE(at::equal(context.gradient(x), at::full({2}, 10., at::kDouble))) << context.gradient(x);
    worker.barrier();
  });
}

TEST_P(CollectivesSuite, BothEndsOfAMessageMayBeInOneContext) {
  auto workers = start(2);
  Context context(workers[0]);
  auto x = at::ones({2}, at::kDouble).requires_grad_();
  auto sent = workers[0].rpc_async<ship>(0, x);
  auto received = workers[0].rpc_async<unload>(1);
  context.backward({(received.wait() * 5).sum() + sent.wait().sum()}, {.timeout = std::chrono::seconds(30)});
  EXPECT_TRUE(at::equal(context.gradient(x), at::full({2}, 10., at::kDouble))) << context.gradient(x);
}

TEST_P(CollectivesSuite, PassesMayComeToOperationsInAnyOrder) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    const int rank = group.rank();
    auto x = at::ones({2}, at::kDouble).requires_grad_();
    Context context(worker);
    auto a = group.all_reduce(x * 2);
    auto b = group.all_reduce(x * 3);
    // Each gets to one of them at once, and to the other after a gradient has been at its peer and back.
    auto& late = rank == 0 ? a : b;
    auto& soon = rank == 0 ? b : a;
    auto loss = worker.rpc_sync<scaled>(1 - rank, late, 5.).sum() + soon.sum();
    context.backward({loss});
    EXPECT_TRUE(at::equal(context.gradient(x), at::full({2}, 2. * 6 + 3. * 6, at::kDouble))) << context.gradient(x);
    worker.barrier();
  });
}

TEST_P(CollectivesSuite, MembersMayAllBeInOneContext) {
  constexpr int size = 3;
  auto workers = start(size);
  kept.clear();
  Context context(workers[0]);
  auto x = at::full({2}, 2., at::kDouble).requires_grad_();
  std::vector<Future<Tensor>> calls;
  for (int rank = 0; rank < size; ++rank) calls.push_back(workers[0].rpc_async<sum_with_own>(rank, x));
  Tensor loss = at::zeros({}, at::kDouble);
  for (int rank = 0; rank < size; ++rank) loss = loss + (calls[rank].wait() * (rank + 1)).sum();
  context.backward({loss}, {.retain_graph = true});
  // Every sum is of 1, 2 and 3 times x, and they count once, twice and three times.
  EXPECT_TRUE(at::equal(context.gradient(x), at::full({2}, 36., at::kDouble))) << context.gradient(x);
  for (int rank = 0; rank < size; ++rank) {
    const Tensor gradient = gradients(workers[rank], context.id()).find(kept.leaf(rank));
    EXPECT_TRUE(at::equal(gradient, at::full({2}, 12., at::kDouble))) << gradient;
  }
  context.backward({loss});
  EXPECT_TRUE(at::equal(context.gradient(x), at::full({2}, 72., at::kDouble))) << context.gradient(x);
  kept.clear();
}

TEST_P(CollectivesSuite, APassThatFailsFailsThoseThatWaitForIt) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::ones({2}, at::kDouble).requires_grad_();
    Context context(worker);
    auto sum = group.all_reduce(x);
    auto y = sum * 2;
    if (group.rank() == 1) y.register_hook([](Tensor) -> Tensor { throw std::runtime_error("no gradient today"); });
    const auto text = message_of<Aborted>([&] { context.backward({y.sum()}); });
    EXPECT_THAT(text, HasSubstr("no gradient today"));
    EXPECT_FALSE(context.gradient(x).defined());
    worker.barrier();
  });
}

TEST_P(CollectivesSuite, APassWhosePartnerDoesNotBeginOneEndsByItsTimeoutAndNamesTheOperationAndThePartner) {
  auto workers = start(3);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::ones({2}).requires_grad_();
    Context context(worker);
    group.barrier();
    const auto sum = group.all_reduce(x);
    if (group.rank() != 1) {
      const auto text = message_of<Aborted>([&] { context.backward({sum.sum()}, {.timeout = 2s}); });
      EXPECT_THAT(text, HasSubstr("not done in 2000 ms; it waits for others in backward of all_reduce(Sum, float32 "
                                  "[2]), number 1 of group {0, 1, 2}: rank 1 (worker1) did not come"));
    }
    worker.barrier();  // The other one's context has not ended yet.
  });
}

TEST_P(CollectivesSuite, APlainBackwardThatComesAfterTheContextHasEndedIsAnError) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::ones({2}).requires_grad_();
    Tensor sum;
    int64_t id = 0;
    {
      Context context(worker);
      id = context.id();
      sum = group.all_reduce(x);
      sum.sum().backward({}, true);
      EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 2.)));
      x.mutable_grad().reset();
    }
    // The others count this member as zero from now on, and so each would get a part only.
    const auto text = message_of<Error>([&] { sum.sum().backward(); });
    EXPECT_THAT(text, HasSubstr("backward of all_reduce(Sum, float32 [2]), number 0 of group {0, 1}"));
    EXPECT_THAT(text, HasSubstr("context " + std::to_string(id) + ", in which it was recorded, has ended"));
    EXPECT_FALSE(x.grad().defined());
    worker.barrier();
  });
}

TEST_P(CollectivesSuite, APassThatComesToAnOperationOfElsewhereFailsAndNamesBoth) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    auto x = at::ones({2}).requires_grad_();
    const auto outside = group.all_reduce(x);
    Tensor before;
    int64_t id = 0;
    {
      Context context(worker);
      id = context.id();
      before = group.all_reduce(x);
    }
    Context context(worker);
    const auto reached = "backward in context " + std::to_string(context.id()) + " reached the backward of all_reduce(";
    const auto of_none = message_of<Aborted>([&] { context.backward({outside.sum()}); });
    EXPECT_THAT(of_none, HasSubstr(reached));
    EXPECT_THAT(of_none, HasSubstr("number 0 of group {0, 1}, which was recorded in none"));
    const auto of_another = message_of<Aborted>([&] { context.backward({before.sum()}); });
    EXPECT_THAT(of_another, HasSubstr(reached));
    EXPECT_THAT(of_another, HasSubstr("number 1 of group {0, 1}, which was recorded in context " + std::to_string(id)));
    // Those are of no use to the context; what it has recorded is.
    context.backward({group.all_reduce(x).sum()});
    EXPECT_TRUE(at::equal(context.gradient(x), at::full({2}, 2.)));
    worker.barrier();
  });
}

TEST_P(CollectivesSuite, WhoWaitsForAMemberWhosePassIsOfElsewhereHearsOfIt) {
  auto workers = start(2);
  workers.each([](Worker& worker) {
    farad::Group group(worker);
    const auto sum = group.all_reduce(at::ones({2}).requires_grad_());
    if (group.rank() == 0) {
      Context context(worker);
      message_of<Aborted>([&] { context.backward({sum.sum()}); });
    } else {
      const auto text = message_of<Error>([&] { sum.sum().backward(); });
      EXPECT_THAT(text, HasSubstr("which was recorded in none"));
      EXPECT_THAT(text, HasSubstr("as rank 0 (worker0) says"));
    }
    worker.barrier();
  });
}

}  // namespace farad::test
