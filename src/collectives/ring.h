#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/collectives.h>

#include "collectives/session.h"
#include "collectives/steps.h"

namespace farad::collectives {

/// An all_reduce without gradients, for many members on few machines: piece by piece the tensor goes from each member
/// to the next, which adds its own, and from the last around to all others. So sums are formed in the order of the
/// members, and each connection carries the tensor twice at most, however many members there are.
///
/// No result if a member's input requires a gradient, which each member hears in the first meeting, and it is no sum:
/// then all of them have to go on with what can be differentiated (see steps.h).
Reduction reduce_in_a_ring(const Ticket& ticket, const Signature& signature, const at::Tensor& input, Op op);

}  // namespace farad::collectives
