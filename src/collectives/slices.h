#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/collectives.h>

#include "collectives/session.h"
#include "collectives/steps.h"

namespace farad::collectives {

/// An all_reduce without gradients, step by step: in each, every member gets its slice of everybody's input, reduces it
/// in the order of the members, and hands it out. The same to the bit as reducing everything in one place.
///
/// No result if a member's input requires a gradient, which each member hears in the first step, and it is no sum: then
/// all of them have to go on with what can be differentiated (see steps.h).
Reduction reduce_in_slices(const Ticket& ticket, const Signature& signature, const at::Tensor& input, Op op);

}  // namespace farad::collectives
