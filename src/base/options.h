#pragma once

#include <farad/options.h>

#include "base/environment.h"
#include "base/status.h"

namespace farad::base {

/// Gives every field that still has its default what the environment says, if it says anything. Invalid if a variable
/// is malformed or two contradict each other; then `options` is untouched.
Status complete(WorkerOptions& options, const Environment& environment);

/// Whether a worker can join with these: Invalid naming the first field that is missing or out of range, and the
/// variables that would give it.
Status check(const WorkerOptions& options);

}  // namespace farad::base
