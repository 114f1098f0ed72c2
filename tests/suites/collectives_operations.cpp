#include "suites/collectives_operations.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

namespace farad::test {
namespace {

constexpr Op every_op[] = {Op::Sum, Op::Mean, Op::Max, Op::Min, Op::Product};
constexpr const char* op_names[] = {"Sum", "Mean", "Max", "Min", "Product"};

Tensor reduced(const Tensors& tensors, Op op) {
  const auto stacked = at::stack(tensors);
  switch (op) {
    case Op::Sum:
      return stacked.sum(0);
    case Op::Mean:
      return stacked.mean(0);
    case Op::Max:
      return stacked.amax(0);
    case Op::Min:
      return stacked.amin(0);
    case Op::Product:
      return stacked.prod(0);
  }
  return {};
}

/// The `place`-th input of all.
Tensors column(const std::vector<Tensors>& inputs, size_t place) {
  Tensors all;
  for (const auto& each : inputs) all.push_back(each[place]);
  return all;
}

std::vector<Tensors> for_all(size_t size, const Tensors& result) { return std::vector<Tensors>(size, result); }

Tensor empty() { return at::empty({0}, at::kDouble); }

/// As long as the member's number says, if shapes may differ; one member has nothing at all.
int64_t length(int rank, bool uneven) { return uneven ? (rank * 2 + 3) % 5 : 3; }

std::function<Tensors(int, int)> one_each(std::vector<int64_t> shape) {
  return [shape](int rank, int) { return Tensors{numbers(shape, rank)}; };
}

void add_reductions(std::vector<Operation>& all) {
  for (size_t i = 0; i < std::size(every_op); ++i) {
    const Op op = every_op[i];
    const std::string name = op_names[i];
    all.push_back({"all_reduce " + name, one_each({2, 3}),
                   [op](farad::Group& group, const Tensors& in) { return Tensors{group.all_reduce(in[0], op)}; },
                   [op](const auto& in) { return for_all(in.size(), {reduced(column(in, 0), op)}); }});
    all.push_back(
        {"reduce " + name, one_each({3}),
         [op](farad::Group& group, const Tensors& in) { return Tensors{group.reduce(in[0], group.size() - 1, op)}; },
         [op](const auto& in) {
           auto out = for_all(in.size(), {empty()});
           out.back() = {reduced(column(in, 0), op)};
           return out;
         }});
    all.push_back({"reduce_scatter " + name,
                   [](int rank, int size) {
                     Tensors inputs;
                     for (int i = 0; i < size; ++i) inputs.push_back(numbers({2, 1 + i % 2}, rank, i));
                     return inputs;
                   },
                   [op](farad::Group& group, const Tensors& in) { return Tensors{group.reduce_scatter(in, op)}; },
                   [op](const auto& in) {
                     std::vector<Tensors> out;
                     for (size_t i = 0; i < in.size(); ++i) out.push_back({reduced(column(in, i), op)});
                     return out;
                   }});
  }
}

}  // namespace

Tensor numbers(at::IntArrayRef shape, int rank, int which) {
  const auto count = c10::multiply_integers(shape);
  return at::arange(count, at::kDouble).mul(0.7).add(1.3 * rank + 0.41 * which + 0.5).sin().add(0.2).reshape(shape);
}

std::vector<Operation> all_operations(bool uneven) {
  std::vector<Operation> all;
  add_reductions(all);
  const auto one = [uneven](int rank, int) { return Tensors{numbers({length(rank, uneven), 2}, rank)}; };
  all.push_back({"all_gather", one, [](farad::Group& group, const Tensors& in) { return group.all_gather(in[0]); },
                 [](const auto& in) { return for_all(in.size(), column(in, 0)); }});
  all.push_back({"all_gather_cat", one,
                 [](farad::Group& group, const Tensors& in) { return Tensors{group.all_gather_cat(in[0])}; },
                 [](const auto& in) { return for_all(in.size(), {at::cat(column(in, 0))}); }});
  all.push_back({"all_gather_cat dim -1",
                 [uneven](int rank, int) { return Tensors{numbers({2, length(rank, uneven)}, rank)}; },
                 [](farad::Group& group, const Tensors& in) { return Tensors{group.all_gather_cat(in[0], -1)}; },
                 [](const auto& in) { return for_all(in.size(), {at::cat(column(in, 0), 1)}); }});
  all.push_back({"all_to_all",
                 [uneven](int rank, int size) {
                   Tensors inputs;
                   for (int i = 0; i < size; ++i) inputs.push_back(numbers({length(rank + 2 * i, uneven)}, rank, i));
                   return inputs;
                 },
                 [](farad::Group& group, const Tensors& in) { return group.all_to_all(in); },
                 [](const auto& in) {
                   std::vector<Tensors> out;
                   for (size_t i = 0; i < in.size(); ++i) out.push_back(column(in, i));
                   return out;
                 }});
  all.push_back({"shift", one, [](farad::Group& group, const Tensors& in) { return Tensors{group.shift(in[0], -2)}; },
                 [](const auto& in) {
                   std::vector<Tensors> out;
                   for (size_t i = 0; i < in.size(); ++i) out.push_back(in[(i + 2) % in.size()]);
                   return out;
                 }});
  all.push_back({"broadcast", one,
                 [](farad::Group& group, const Tensors& in) { return Tensors{group.broadcast(in[0], 0)}; },
                 [](const auto& in) { return for_all(in.size(), in[0]); }});
  all.push_back({"gather", one,
                 [](farad::Group& group, const Tensors& in) { return group.gather(in[0], group.size() / 2); },
                 [](const auto& in) {
                   auto out = for_all(in.size(), Tensors(in.size(), empty()));
                   out[in.size() / 2] = column(in, 0);
                   return out;
                 }});
  all.push_back({"scatter",
                 [uneven](int rank, int size) {
                   Tensors inputs;
                   for (int i = 0; i < size; ++i) inputs.push_back(numbers({length(i, uneven)}, rank, i));
                   return inputs;
                 },
                 [](farad::Group& group, const Tensors& in) { return Tensors{group.scatter(in, 0)}; },
                 [](const auto& in) {
                   std::vector<Tensors> out;
                   for (size_t i = 0; i < in.size(); ++i) out.push_back({in[0][i]});
                   return out;
                 }});
  all.push_back({"send and recv", one,
                 [](farad::Group& group, const Tensors& in) {
                   // To the next, from the one before; alone there is nobody.
                   if (group.size() == 1) return in;
                   auto sent = group.send(in[0], (group.rank() + 1) % group.size());
                   return Tensors{group.recv((group.rank() + group.size() - 1) % group.size(), in[0]), sent};
                 },
                 [](const auto& in) {
                   std::vector<Tensors> out;
                   for (size_t i = 0; i < in.size(); ++i) {
                     out.push_back(in[(i + in.size() - 1) % in.size()]);
                     if (in.size() > 1) out.back().push_back(empty());
                   }
                   return out;
                 }});
  return all;
}

void expect_same(const Tensors& got, const Tensors& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!got[i].defined() && !expected[i].defined()) continue;
    const auto one = got[i].defined() ? got[i] : at::zeros_like(expected[i]);
    const auto other = expected[i].defined() ? expected[i] : at::zeros_like(got[i]);
    ASSERT_EQ(one.sizes(), other.sizes()) << what << ", number " << i;
    EXPECT_TRUE(at::allclose(one, other, tolerance, tolerance)) << what << ", number " << i << ":\n"
                                                                << one << "\nnot\n"
                                                                << other;
  }
}

Tensor loss_of(const Tensors& results, int rank) {
  Tensor loss = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto weight = 0.3 + 0.2 * rank + 0.1 * static_cast<double>(i);
    loss = loss + (results[i] * weight + results[i].pow(3) * 0.2).sum();
  }
  return loss;
}

Tensor second_loss_of(const Tensors& gradients, int rank) {
  Tensor loss = at::zeros({}, at::kDouble);
  for (const auto& gradient : gradients) {
    if (gradient.defined()) loss = loss + (gradient.pow(2) * (0.5 + 0.1 * rank)).sum();
  }
  return loss;
}

Tensors leaves(Tensors inputs) {
  for (auto& input : inputs) input.requires_grad_();
  return inputs;
}

Tensors gradients_of(const Tensors& inputs) {
  Tensors gradients;
  for (const auto& input : inputs) gradients.push_back(input.grad());
  return gradients;
}

void clear_gradients(const Tensors& inputs) {
  for (auto input : inputs) input.mutable_grad().reset();
}

Expected in_one_process(const Operation& operation, int size) {
  std::vector<Tensors> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(leaves(operation.inputs(rank, size)));
  const auto results = operation.alone(inputs);
  Tensor total = at::zeros({}, at::kDouble);
  for (int rank = 0; rank < size; ++rank) total = total + loss_of(results[rank], rank);
  torch::autograd::backward({total}, {}, {}, true);
  Expected expected;
  for (const auto& each : inputs) expected.first.push_back(gradients_of(each));
  Tensor second = at::zeros({}, at::kDouble);
  for (int rank = 0; rank < size; ++rank) second = second + second_loss_of(expected.first[rank], rank);
  for (const auto& each : inputs) clear_gradients(each);
  torch::autograd::backward({second});
  for (const auto& each : inputs) {
    expected.second.push_back(gradients_of(each));
    clear_gradients(each);  // Each holds the graph that holds it.
  }
  return expected;
}

}  // namespace farad::test
