#include "acer/audit_reference.h"

#include "acer/duelling_reference.h"
#include "acer/reference.h"

namespace farad::acer {

std::vector<std::vector<double>> reference_of(Module& network, Module& average, const Batch& batch,
                                              const Rules& rules) {
  if (batch.amounts() == 0)
    return reference_gradient(*network.as<NetworkImpl>(), *average.as<NetworkImpl>(), batch, rules);
  return reference_gradient(*network.as<DuellingNetworkImpl>(), *average.as<DuellingNetworkImpl>(), batch, rules);
}

}  // namespace farad::acer
