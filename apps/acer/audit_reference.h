#pragma once

#include <vector>

#include "acer/batch.h"
#include "acer/module.h"
#include "acer/rules.h"

namespace farad::acer {

/// The reference's gradient, for networks of either kind: in double precision, for each parameter a row of numbers.
std::vector<std::vector<double>> reference_of(Module& network, Module& average, const Batch& batch, const Rules& rules);

}  // namespace farad::acer
