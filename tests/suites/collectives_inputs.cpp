// Gradients of operations on inputs that are unlike most: by how they lie in memory, and by what their numbers are.

#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <utility>

#include "collectives/reduction.h"
#include "suites/collectives_suite.h"

namespace farad::test {
namespace {

using torch::autograd::backward;

}  // namespace

TEST_P(CollectivesSuite, InputsThatAreNotContiguousGiveTheSameGradients) {
  // Every other element in memory, and transposed where there is something to transpose.
  const auto strided = [](const Tensor& x) {
    const auto turned = x.dim() < 2 ? x : x.t();
    const auto apart = at::stack({turned, turned}, -1).select(-1, 0);
    return x.dim() < 2 ? apart : apart.t();
  };
  constexpr int size = 3;
  auto workers = start(size);
  for (const auto& operation : all_operations(true)) {
    const auto expected = in_one_process(operation, size);
    workers.each([&](Worker& worker) {
      farad::Group group(worker);
      const int rank = group.rank();
      const auto inputs = leaves(operation.inputs(rank, size));
      Tensors views;
      for (const auto& input : inputs) views.push_back(strided(input));
      for (const auto& view : views) EXPECT_TRUE(view.numel() < 2 || !view.is_contiguous());
      backward({loss_of(operation.together(group, views), rank)});
      expect_same(gradients_of(inputs), expected.first[rank], 1e-12, operation.name);
      clear_gradients(inputs);
    });
  }
}

TEST_P(CollectivesSuite, ReductionsAreTheSameToTheBitHoweverInputsLieInMemory) {
  constexpr int size = 3;
  auto workers = start(size);
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kComplexFloat, at::kComplexDouble}) {
    Tensors inputs;
    for (int rank = 0; rank < size; ++rank) {
      const auto real = numbers({5, 37}, rank);
      inputs.push_back((at::isComplexType(type) ? at::complex(real, numbers({5, 37}, rank, 1)) : real).to(type));
    }
    const auto as_it_lies = [&](int rank) {
      const auto& input = inputs[rank];
      if (rank == 1) return at::stack({input, input}, -1).select(-1, 0);  // Every other element in memory.
      return rank == 2 ? input.t().contiguous().t() : input;
    };
    for (const Op op : {Op::Sum, Op::Mean, Op::Max, Op::Min, Op::Product}) {
      if (at::isComplexType(type) && (op == Op::Max || op == Op::Min)) continue;
      const auto expected = collectives::reduce(inputs, op);
      const auto what = std::string(c10::toString(type)) + ", Op " + std::to_string(static_cast<int>(op));
      workers.each([&](Worker& worker) {
        farad::Group group(worker);
        const auto mine = as_it_lies(worker.rank());
        const auto expect_equal = [&](const Tensor& got, const char* operation) {
          EXPECT_TRUE(at::equal(got, expected)) << operation << " of " << what << " at " << worker.rank();
          EXPECT_TRUE(got.is_contiguous()) << operation << " of " << what;
        };
        expect_equal(group.all_reduce(mine, op), "all_reduce");
        expect_equal(group.reduce_scatter({mine, mine, mine}, op), "reduce_scatter");
        for (int root = 0; root < size; ++root) {
          const auto at_root = group.reduce(mine, root, op);
          if (root == worker.rank()) expect_equal(at_root, "reduce");
        }
      });
    }
  }
}

namespace {

/// Rows of a tensor, and what becomes of those of all members.
struct Way {
  std::string name;
  std::function<Tensors(farad::Group&, const Tensor&)> together;
  std::function<Tensors(const Tensors& all, int rank)> alone;
};

Tensor reduced(const Tensors& tensors, Op op) {
  if (op == Op::Max) return at::stack(tensors).amax(0);
  if (op == Op::Min) return at::stack(tensors).amin(0);
  auto result = tensors[0];
  for (size_t i = 1; i < tensors.size(); ++i) result = op == Op::Product ? result * tensors[i] : result + tensors[i];
  return op == Op::Mean ? result / static_cast<double>(tensors.size()) : result;
}

std::vector<Way> ways_of(at::ScalarType type) {
  std::vector<Way> ways{{"all_gather", [](farad::Group& group, const Tensor& x) { return group.all_gather(x); },
                         [](const Tensors& all, int) { return all; }}};
  for (const Op op : {Op::Sum, Op::Mean, Op::Max, Op::Min, Op::Product}) {
    if (at::isComplexType(type) && (op == Op::Max || op == Op::Min)) continue;
    const auto number = " by Op " + std::to_string(static_cast<int>(op));
    ways.push_back({"all_reduce" + number,
                    [op](farad::Group& group, const Tensor& x) { return Tensors{group.all_reduce(x, op)}; },
                    [op](const Tensors& all, int) { return Tensors{reduced(all, op)}; }});
    ways.push_back({"reduce" + number,
                    [op](farad::Group& group, const Tensor& x) { return Tensors{group.reduce(x, 1, op)}; },
                    [op](const Tensors& all, int rank) { return rank == 1 ? Tensors{reduced(all, op)} : Tensors(); }});
    ways.push_back(
        {"reduce_scatter" + number,
         [op](farad::Group& group, const Tensor& x) { return Tensors{group.reduce_scatter(x.unbind(), op)}; },
         [op](const Tensors& all, int rank) {
           Tensors rows;
           for (const auto& each : all) rows.push_back(each[rank]);
           return Tensors{reduced(rows, op)};
         }});
  }
  return ways;
}

}  // namespace

TEST_P(CollectivesSuite, GradientsByEveryOpOfEveryDtypeAreThoseOfOneProcess) {
  constexpr int size = 3;
  struct Kind {
    at::ScalarType type, wide;
    double tolerance;
  };
  auto workers = start(size);
  for (const auto& kind : {Kind{at::kComplexDouble, at::kComplexDouble, 1e-12},
                           Kind{at::kComplexFloat, at::kComplexDouble, 1e-5}, Kind{at::kFloat, at::kDouble, 1e-5},
                           Kind{at::kHalf, at::kDouble, 4e-3}, Kind{at::kBFloat16, at::kDouble, 3e-2}}) {
    const auto input_of = [&](int rank) {
      const auto real = numbers({size, 2}, rank);
      const auto input = at::isComplexType(kind.type) ? at::complex(real, numbers({size, 2}, rank, 1)) : real;
      return input.to(kind.type).requires_grad_();
    };
    const auto loss_in = [&](const Tensors& results, int rank) {
      Tensor loss = at::zeros({}, at::kDouble);
      for (size_t i = 0; i < results.size(); ++i) {
        const auto wide = results[i].to(kind.wide);
        loss = loss + at::real(wide * wide.conj()).sum() * (0.5 + rank + 2.0 * static_cast<double>(i));
      }
      return loss;
    };
    for (const auto& way : ways_of(kind.type)) {
      Tensors all;
      for (int rank = 0; rank < size; ++rank) all.push_back(input_of(rank));
      Tensor total = at::zeros({}, at::kDouble);
      for (int rank = 0; rank < size; ++rank) total = total + loss_in(way.alone(all, rank), rank);
      backward({total});
      workers.each([&](Worker& worker) {
        farad::Group group(worker);
        const int rank = group.rank();
        const auto x = input_of(rank);
        backward({loss_in(way.together(group, x), rank)});
        ASSERT_TRUE(x.grad().defined()) << way.name;
        EXPECT_EQ(x.grad().scalar_type(), kind.type);
        expect_same({x.grad().to(kind.wide)}, {all[rank].grad().to(kind.wide)}, kind.tolerance,
                    way.name + " of " + c10::toString(kind.type));
      });
    }
  }
}

}  // namespace farad::test
