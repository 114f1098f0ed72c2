#pragma once

#include "base/environment.h"
#include "doctor/finding.h"

namespace farad::doctor {

/// farad, compiler, kernel, C library.
Findings check_versions();
/// The libtorch of the build and the one that loads now, and the BLAS behind it.
Findings check_torch();
/// Cores, memory, limits.
Findings check_machine();
/// What each transport needs of the kernel, tried out.
Findings check_transports();
/// Who may join a group started here.
Findings check_trust(const base::Environment& environment);
/// Every variable of the table that is set.
Findings check_environment(const base::Environment& environment);

}  // namespace farad::doctor
