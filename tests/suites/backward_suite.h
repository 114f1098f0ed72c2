#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <farad/autograd.h>

#include "suites/rpc_suite.h"

namespace farad::test {

using at::Tensor;

/// What contexts and backward passes promise (include/farad/autograd.h), with all workers in this process.
class BackwardSuite : public RpcSuite {};

/// 3x3, of doubles, of which none is a power of two, so that a term too many or too few is seen.
Tensor leaf(double first);

/// The product of two, element by element; the plainest call that saves what it is given.
Tensor multiply(Tensor a, Tensor b);

/// Equal to the bit, and undefined exactly where that is expected: the same operations on the same numbers.
void expect_equal(const Tensor& gradient, const Tensor& expected);
/// Defined, and equal but for the order of sums.
void expect_close(const Tensor& gradient, const Tensor& expected);
/// Of the worker that made the context.
void expect_gradient(const Context& context, const Tensor& leaf, const Tensor& expected);
/// Of another worker of this process.
Tensor gradient_at(Worker& worker, const Context& context, const Tensor& leaf);

/// Summed over the workers of this process, which all use the leaf; zeros where there is none.
Tensor gradient_everywhere(Group& group, const Context& context, const Tensor& leaf);

/// Messages in need of gradients that worker has recorded, in all its contexts.
size_t recorded(const Worker& worker);
/// True once no worker of the group has anything of any context.
bool no_context_is_left(Group& group);

}  // namespace farad::test
