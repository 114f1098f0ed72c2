// Gradients in groups of some workers, in another order than theirs, and of losses that go through several groups.

#include <farad/autograd.h>
#include <torch/csrc/autograd/autograd.h>

#include "suites/collectives_suite.h"

namespace farad::test {
namespace {

using torch::autograd::backward;

const std::vector<int> some{2, 0, 3};  // Of four; members in that order.

}  // namespace

TEST_P(CollectivesSuite, SomeWorkersInAnyOrderHaveTheGradientsOfTheirLosses) {
  constexpr int size = 3;
  auto workers = start(4);
  for (const auto& operation : all_operations(true)) {
    const auto expected = in_one_process(operation, size);
    workers.each([&](Worker& worker) {
      if (worker.rank() == 1) return;
      farad::Group group(worker, some);
      const int member = group.rank();
      EXPECT_EQ(some[static_cast<size_t>(member)], worker.rank());
      const auto what = operation.name + " at member " + std::to_string(member);
      const auto inputs = leaves(operation.inputs(member, size));
      backward({loss_of(operation.together(group, inputs), member)}, {}, {}, true);
      const auto first = gradients_of(inputs);
      expect_same(first, expected.first[member], 1e-12, what);
      clear_gradients(inputs);
      backward({second_loss_of(first, member)});
      expect_same(gradients_of(inputs), expected.second[member], 1e-12, what + ", twice");
      clear_gradients(inputs);

      const auto anchor = at::zeros({}, at::kDouble).requires_grad_();
      Context context(worker);
      const auto loss = loss_of(operation.together(group, inputs), member) + anchor;
      expect_same(grad(context, {loss}, inputs), expected.first[member], 1e-12, what + ", in a context");
    });
  }
}

// Four workers as a square: each is in a group of its row and in one of its column, and its loss goes through both.
TEST_P(CollectivesSuite, ALossMayGoThroughSeveralGroups) {
  constexpr int size = 4;
  auto workers = start(size);
  Tensors all;
  for (int rank = 0; rank < size; ++rank) all.push_back(numbers({3}, rank).requires_grad_());
  Tensors rows;
  for (int rank = 0; rank < size; ++rank) rows.push_back((all[rank] * all[rank ^ 1]).sin());
  Tensor total = at::zeros({}, at::kDouble);
  for (int rank = 0; rank < size; ++rank) {
    const Tensors column{rows[rank & 1], rows[(rank & 1) + 2]};
    total = total + loss_of({column[0], column[1], rows[rank]}, rank);
  }
  const auto first = torch::autograd::grad({total}, all, {}, {}, true);
  Tensor second_total = at::zeros({}, at::kDouble);
  for (int rank = 0; rank < size; ++rank) second_total = second_total + second_loss_of({first[rank]}, rank);
  const auto second = torch::autograd::grad({second_total}, all);

  workers.each([&](Worker& worker) {
    const int rank = worker.rank();
    farad::Group row(worker, {rank & 2, (rank & 2) + 1});
    farad::Group column(worker, {rank & 1, (rank & 1) + 2});
    auto x = numbers({3}, rank).requires_grad_();
    const auto loss = [&] {
      const auto own = row.all_reduce(x, Op::Product).sin();
      auto results = column.all_gather(own);
      results.push_back(own);
      return loss_of(results, rank);
    };
    backward({loss()}, {}, {}, true);
    const auto slope = x.grad();
    expect_same({slope}, {first[rank]}, 1e-12, "plain");
    x.mutable_grad().reset();
    backward({second_loss_of({slope}, rank)});
    expect_same({x.grad()}, {second[rank]}, 1e-12, "plain, twice");
    x.mutable_grad().reset();

    Context context(worker);
    const auto once = grad(context, {loss()}, {x}, {.create_graph = true});
    expect_same(once, {first[rank]}, 1e-12, "in a context");
    expect_same(grad(context, {second_loss_of(once, rank)}, {x}), {second[rank]}, 1e-12, "in a context, twice");
  });
}

}  // namespace farad::test
