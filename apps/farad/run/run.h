#pragma once

#include "run/options.h"

namespace farad::run {

/// `farad run`: starts the workers, waits for them, and leaves no process behind. Returns the code to exit with.
int run(const RunOptions& options);

}  // namespace farad::run
