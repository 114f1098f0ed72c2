#pragma once

#include <ATen/ATen.h>
#include <farad/collectives.h>

#include <functional>
#include <string>
#include <vector>

namespace farad::test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// One operation as the members of a group call it, and as one process computes it that has all inputs.
struct Operation {
  std::string name;
  /// What a member gives: any number of tensors.
  std::function<Tensors(int rank, int size)> inputs;
  /// What it gets.
  std::function<Tensors(farad::Group&, const Tensors&)> together;
  /// What each gets, by member.
  std::function<std::vector<Tensors>(const std::vector<Tensors>& inputs)> alone;
};

/// Every operation with every Op, in float64; shapes differ by member where they may and `uneven` is set.
std::vector<Operation> all_operations(bool uneven);

/// Numbers that depend on `rank` and `which` only.
Tensor numbers(at::IntArrayRef shape, int rank, int which = 0);

/// A gradient that is not there is the same as zero.
void expect_same(const Tensors& got, const Tensors& expected, double tolerance, const std::string& what);

/// What a member makes of what it got: different for each, and not linear, so that a second derivative is there.
Tensor loss_of(const Tensors& results, int rank);
/// And of its gradients, where it has any.
Tensor second_loss_of(const Tensors& gradients, int rank);

Tensors leaves(Tensors inputs);
Tensors gradients_of(const Tensors& inputs);
void clear_gradients(const Tensors& inputs);

/// The gradients of the sum of all members' losses, and of the sum of their second losses; by member.
struct Expected {
  std::vector<Tensors> first, second;
};
Expected in_one_process(const Operation& operation, int size);

}  // namespace farad::test
