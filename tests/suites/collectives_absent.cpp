// What gradients come to if only one member wants one, or one takes no part in the backward.

#include <farad/autograd.h>
#include <torch/csrc/autograd/autograd.h>

#include "suites/collectives_suite.h"

namespace farad::test {
namespace {

constexpr int size = 3;
constexpr int nobody = -1, everybody = -2;

/// One member is different from the others.
struct Case {
  Operation operation;
  int member;
  std::string what;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const bool uneven : {false, true}) {
    for (const auto& operation : all_operations(uneven)) {
      for (int member = 0; member < size; ++member) {
        cases.push_back({operation, member, operation.name + ", but for " + std::to_string(member)});
      }
    }
  }
  return cases;
}

Tensors inputs_of(const Operation& operation, int rank, int wanting) {
  auto inputs = operation.inputs(rank, size);
  return wanting == everybody || wanting == rank ? leaves(std::move(inputs)) : inputs;
}

/// What each member's inputs get in one process, of the losses of all but `absent`.
std::vector<Tensors> expected(const Operation& operation, int absent, int wanting) {
  std::vector<Tensors> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(inputs_of(operation, rank, wanting));
  const auto results = operation.alone(inputs);
  Tensor total = at::zeros({}, at::kDouble);
  for (int rank = 0; rank < size; ++rank) {
    if (rank != absent) total = total + loss_of(results[rank], rank);
  }
  if (total.requires_grad()) total.backward();
  std::vector<Tensors> gradients;
  for (const auto& each : inputs) gradients.push_back(gradients_of(each));
  return gradients;
}

}  // namespace

TEST_P(CollectivesSuite, OneMembersInputsMayRequireGradientsThoughTheOthersDoNot) {
  auto workers = start(size);
  for (const auto& [operation, wanting, what] : all_cases()) {
    const auto gradients = expected(operation, nobody, wanting);
    workers.each([&, &operation = operation, wanting = wanting, &what = what](Worker& worker) {
      farad::Group group(worker);
      const int rank = worker.rank();
      const auto inputs = inputs_of(operation, rank, wanting);
      const auto loss = loss_of(operation.together(group, inputs), rank);
      // What came of one that requires a gradient does so too; and nobody waits for those who got nothing of it.
      if (loss.requires_grad()) loss.backward();
      if (rank == wanting) expect_same(gradients_of(inputs), gradients[rank], 1e-12, what);
      clear_gradients(inputs);

      const auto anchor = at::zeros({}, at::kDouble).requires_grad_();
      Context context(worker);
      context.backward({loss_of(operation.together(group, inputs), rank) + anchor});
      if (rank != wanting) return;
      Tensors in_context;
      for (const auto& input : inputs) in_context.push_back(context.gradient(input));
      expect_same(in_context, gradients[rank], 1e-12, what + ", in a context");
    });
  }
}

TEST_P(CollectivesSuite, ResultsThatAMemberLetsGoOfCountAsZeroInEveryOperation) {
  auto workers = start(size);
  for (const auto& [operation, absent, what] : all_cases()) {
    const auto gradients = expected(operation, absent, everybody);
    workers.each([&, &operation = operation, absent = absent, &what = what](Worker& worker) {
      farad::Group group(worker);
      const int rank = worker.rank();
      const auto inputs = inputs_of(operation, rank, everybody);
      auto results = operation.together(group, inputs);
      if (rank == absent) {
        results.clear();
      } else {
        loss_of(results, rank).backward();
        expect_same(gradients_of(inputs), gradients[rank], 1e-12, what);
      }
      group.barrier();
    });
  }
}

TEST_P(CollectivesSuite, AContextThatEndsOrAPassThatGoesElsewhereCountsAsZeroInEveryOperation) {
  auto workers = start(size);
  for (const auto& [operation, absent, what] : all_cases()) {
    const auto gradients = expected(operation, absent, everybody);
    for (const bool elsewhere : {false, true}) {
      workers.each([&, &operation = operation, absent = absent, &what = what](Worker& worker) {
        farad::Group group(worker);
        const int rank = worker.rank();
        const auto inputs = inputs_of(operation, rank, everybody);
        const auto anchor = at::zeros({}, at::kDouble).requires_grad_();
        Context context(worker);
        const auto results = operation.together(group, inputs);
        if (rank == absent && !elsewhere) return;
        const auto loss = rank == absent ? anchor * 1 : loss_of(results, rank) + anchor;
        expect_same(grad(context, {loss}, inputs), gradients[rank], 1e-12, what);
      });
    }
  }
}

}  // namespace farad::test
