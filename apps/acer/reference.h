#pragma once

#include <vector>

#include "acer/batch.h"
#include "acer/network.h"
#include "acer/rules.h"

namespace farad::acer {

/// The gradient of a batch once more, by another way, to compare Gradient with: in double precision, without libtorch's
/// backward pass, Retrace as a sum over what is ahead instead of a recursion, the policy gradient and the bound in
/// logits. In the order of Network::parameters(), not clipped. Slow.
std::vector<std::vector<double>> reference_gradient(const NetworkImpl& network, const NetworkImpl& average,
                                                    const Batch& batch, const Rules& rules);

}  // namespace farad::acer
