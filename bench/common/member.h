#pragma once

#include <farad/worker.h>

#include "common/program.h"

namespace farad::bench {

/// Joins the group that meets at words[0], on the transport words[1].
Worker join(const Words& words, int rank, int size = 2);

}  // namespace farad::bench
