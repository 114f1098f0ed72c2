#pragma once

#include <vector>

#include "acer/batch.h"
#include "acer/duelling_network.h"
#include "acer/rules.h"

namespace farad::acer {

/// The gradient of a batch of amounts once more, by another way, to compare DuellingGradient with: in double precision,
/// without libtorch's backward pass, the targets as sums over what is ahead instead of recursions. In the order of
/// DuellingNetwork::parameters(), not clipped. Slow.
std::vector<std::vector<double>> reference_gradient(const DuellingNetworkImpl& network,
                                                    const DuellingNetworkImpl& average, const Batch& batch,
                                                    const Rules& rules);

}  // namespace farad::acer
