#pragma once

#include <string>

namespace farad::arithmetic {

/// The variable by which OpenBLAS is told, when it is loaded, what processor to compute for.
inline constexpr const char* kernels_variable = "OPENBLAS_CORETYPE";

/// What to set that to before a program is loaded; empty if nothing is to be gained, or the user has set it. A version
/// of OpenBLAS that is older than the processor may not know it, and then computes as for one of twenty years ago, at a
/// quarter of the speed.
std::string better_kernels();

/// The kernels that an OpenBLAS has chosen, by what dlsym() found as its openblas_get_corename; empty for nullptr.
std::string kernels_named_by(void* get_corename);

/// For a program whose processes have a core each at best: none uses several for one operation, and it uses that one
/// well. Starts the program again with both in its environment, because both OpenMP and OpenBLAS read when a program is
/// loaded what they are to do; returns if there is nothing to change.
void use_one_core_well(char** argv);

}  // namespace farad::arithmetic
