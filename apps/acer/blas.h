#pragma once

#include <string>

namespace farad::acer {

/// What to set OPENBLAS_CORETYPE to before this program is loaded; empty if nothing is to be gained. A version of
/// OpenBLAS that is older than the processor may not know it, and then computes as for one of twenty years ago, at a
/// quarter of the speed.
std::string better_blas_kernels();

}  // namespace farad::acer
