#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/collectives.h>

#include "collectives/session.h"
#include "collectives/steps.h"

namespace farad::collectives {

/// An all_reduce without gradients, for small tensors and many members: in each round a member hands on all inputs that
/// it has to one other, and gets as many that it lacks from another; so it has everybody's after log2 of the number of
/// members, rounded up, and reduces them in the order of the members. As many bytes as if each input went to each
/// member by itself, but few letters.
///
/// Members do not hear from all others directly. Who sees that something is wrong tells all of them, in the round
/// where it is and in all later ones.
///
/// No result if a member's input requires a gradient, which goes around with the inputs: then all of them have to go on
/// with what can be differentiated (see steps.h).
Reduction reduce_by_doubling(const Ticket& ticket, const Signature& signature, const at::Tensor& input, Op op);

}  // namespace farad::collectives
