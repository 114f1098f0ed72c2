// Gradients through an all_reduce, whichever algorithm would be chosen for its size.

#include <c10/core/GradMode.h>
#include <farad/autograd.h>
#include <torch/csrc/autograd/autograd.h>

#include "collectives/operations.h"
#include "suites/collectives_algorithms.h"
#include "suites/collectives_suite.h"

namespace farad::test {
namespace {

using collectives::Session;
using collectives::Ticket;
using torch::autograd::backward;

constexpr int members = 3;
constexpr int64_t elements = 41;  // So that each member has a slice, and none as long as the others'.

Tensor sum_of(const std::shared_ptr<Session>& session, const Tensor& input) {
  return collectives::all_reduce(Ticket(session), input, Op::Sum);
}

/// What each member's loss counts.
double weight(int rank) { return rank + 1; }
double weight_without(int absent) { return weight(0) + weight(1) + weight(2) - weight(absent); }

Tensor ones() { return at::ones({elements}, at::kDouble).requires_grad_(); }

void expect_all(const Tensor& gradient, double value, const std::string& what) {
  ASSERT_TRUE(gradient.defined()) << what;
  EXPECT_TRUE(at::equal(gradient, at::full({elements}, value, at::kDouble))) << what << "\n" << gradient;
}

/// Runs `act` at every member, for every algorithm, and for each of the members as the one that is `absent`.
void for_each_absent(
    Group& workers,
    const std::function<void(Worker&, const std::shared_ptr<Session>&, int absent, const std::string& what)>& act) {
  for (const auto& choice : algorithm_choices) {
    for (int absent = 0; absent < members; ++absent) {
      const auto what = std::string(choice.name) + ", without " + std::to_string(absent);
      workers.each([&](Worker& worker) {
        const auto session = session_of(worker, choice.algorithms);
        act(worker, session, absent, what);
        collectives::barrier(Ticket(session));
      });
    }
  }
}

}  // namespace

TEST_P(CollectivesSuite, EveryAlgorithmIsDifferentiatedTwiceByEveryOp) {
  auto workers = start(members);
  auto operations = all_operations(false);
  std::erase_if(operations, [](const auto& operation) { return !operation.name.starts_with("all_reduce"); });
  ASSERT_EQ(operations.size(), std::size(every_reduction));
  for (size_t i = 0; i < operations.size(); ++i) {
    const auto expected = in_one_process(operations[i], members);
    for (const auto& choice : algorithm_choices) {
      workers.each([&](Worker& worker) {
        const auto session = session_of(worker, choice.algorithms);
        const int rank = worker.rank();
        const auto what = operations[i].name + " by " + choice.name + " at " + std::to_string(rank);
        const auto inputs = leaves(operations[i].inputs(rank, members));
        const auto loss = [&] {
          return loss_of({collectives::all_reduce(Ticket(session), inputs[0], every_reduction[i])}, rank);
        };

        backward({loss()}, {}, {}, true);
        const auto plain = gradients_of(inputs);
        expect_same(plain, expected.first[rank], 1e-12, what);
        clear_gradients(inputs);
        backward({second_loss_of(plain, rank)});
        expect_same(gradients_of(inputs), expected.second[rank], 1e-12, what + ", twice");
        clear_gradients(inputs);

        Context context(worker);
        const auto first = grad(context, {loss()}, inputs, {.create_graph = true});
        expect_same(first, expected.first[rank], 1e-12, what + " in a context");
        const auto second = grad(context, {second_loss_of(first, rank)}, inputs);
        expect_same(second, expected.second[rank], 1e-12, what + " in a context, twice");
      });
    }
  }
}

TEST_P(CollectivesSuite, ResultsMayBeChangedInPlaceByWhatRequiresAGradient) {
  auto workers = start(members);
  for (const auto& choice : algorithm_choices) {
    workers.each([&](Worker& worker) {
      const auto session = session_of(worker, choice.algorithms);
      for (const bool differentiated : {false, true}) {
        auto x = ones().requires_grad_(differentiated), added = ones();
        auto sum = sum_of(session, x);
        sum.mul_(2).add_(added);
        sum.sum().backward();
        expect_all(added.grad(), 1, choice.name);
        if (differentiated) expect_all(x.grad(), 2 * members, choice.name);
      }
      collectives::barrier(Ticket(session));
    });
  }
}

TEST_P(CollectivesSuite, OneMemberThatWantsAGradientGetsItThoughTheOthersDoNot) {
  auto workers = start(members);
  for_each_absent(workers, [](Worker& worker, const auto& session, int wanting, const std::string& what) {
    auto x = ones().requires_grad_(worker.rank() == wanting);
    const auto sum = sum_of(session, x);
    ASSERT_TRUE(sum.requires_grad()) << what;  // Everybody's loss counts.
    (sum * weight(worker.rank())).sum().backward();
    if (worker.rank() == wanting) expect_all(x.grad(), weight(0) + weight(1) + weight(2), what);
  });
}

TEST_P(CollectivesSuite, WhoDoesNotRecordTakesNoGradientFromTheOthers) {
  auto workers = start(members);
  for_each_absent(workers, [](Worker& worker, const auto& session, int absent, const std::string& what) {
    const int rank = worker.rank();
    auto x = ones();
    Tensor sum;
    {
      const c10::AutoGradMode mode(rank != absent);
      sum = sum_of(session, x);
    }
    EXPECT_EQ(sum.requires_grad(), rank != absent) << what;
    if (rank == absent) return;
    (sum * weight(rank)).sum().backward();
    expect_all(x.grad(), weight_without(absent), what);
  });
}

TEST_P(CollectivesSuite, WhoLetsItsResultGoTakesNoGradientFromTheOthers) {
  auto workers = start(members);
  for_each_absent(workers, [](Worker& worker, const auto& session, int absent, const std::string& what) {
    const int rank = worker.rank();
    auto x = ones();
    auto sum = sum_of(session, x);
    if (rank == absent) return;
    const auto loss = (sum * sum * weight(rank)).sum();
    const auto slope = torch::autograd::grad({loss}, {x}, {}, {}, true)[0];
    expect_all(slope.detach(), 2 * members * weight_without(absent), what);
    slope.sum().backward();
    expect_all(x.grad(), 2 * 2 * weight_without(absent), what + ", twice");
  });
}

TEST_P(CollectivesSuite, WhoseContextEndsOrPassGoesElsewhereTakesNoGradientFromTheOthers) {
  auto workers = start(members);
  for (const bool elsewhere : {false, true}) {
    for_each_absent(workers, [=](Worker& worker, const auto& session, int absent, const std::string& what) {
      const int rank = worker.rank();
      auto x = ones(), other = ones();
      {
        Context context(worker);
        const auto sum = sum_of(session, x);
        if (rank != absent) {
          context.backward({(sum * weight(rank)).sum()});
          expect_all(context.gradient(x), weight_without(absent), what);
        } else if (elsewhere) {
          context.backward({other.sum()});
          expect_all(context.gradient(other), 1, what);
        }
      }
    });
  }
}

}  // namespace farad::test
