#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/collectives.h>

#include <vector>

namespace farad::collectives {

/// Throws if tensors of that dtype cannot be reduced so.
void check_reducible(const at::Tensor& tensor, Op op, const char* operation);

/// Element by element, over tensors of one shape and dtype, in their order: so the result depends on nothing else. By
/// functions of libtorch, whose gradients it has: of Max and Min shared evenly among ties; of Product the product of
/// the others, without a division.
at::Tensor reduce(const std::vector<at::Tensor>& tensors, Op op);

/// The same values, into memory that is there; without gradients. Not of one tensor only.
void reduce_into(at::Tensor& out, const std::vector<at::Tensor>& tensors, Op op);

}  // namespace farad::collectives
