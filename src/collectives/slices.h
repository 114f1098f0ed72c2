#pragma once

#include <ATen/core/TensorBody.h>
#include <farad/collectives.h>

#include <optional>

#include "collectives/session.h"

namespace farad::collectives {

/// An all_reduce without gradients, step by step: in each, every member gets its slice of everybody's input, reduces it
/// in the order of the members, and hands it out. The same to the bit as reducing everything in one place.
///
/// Nothing if a member's input requires a gradient, which each member hears in the first step: then all of them have to
/// go on with what can be differentiated (see steps.h).
std::optional<at::Tensor> reduce_in_slices(const Ticket& ticket, const Signature& signature, const at::Tensor& input,
                                           Op op);

}  // namespace farad::collectives
