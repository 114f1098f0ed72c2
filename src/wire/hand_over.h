#pragma once

#include <ATen/core/TensorBody.h>

namespace farad::wire {

/// Whether the receiver may be given the very memory of `tensor` instead of a copy: nobody else refers to the tensor
/// or its storage (no other handle, no view, no autograd graph that saved it), and the storage is not shared lazily.
/// Version counters do not cross processes, so without this rule a change on one side falsifies, unnoticed, the
/// gradients of the other. `tensor` is the only handle the caller has: pass the one in the message, not a copy of it.
bool may_hand_over(const at::Tensor& tensor);

/// What to send otherwise: the same values in memory of their own; no history, requires_grad kept.
at::Tensor snapshot(const at::Tensor& tensor);

}  // namespace farad::wire
