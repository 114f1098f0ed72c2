#pragma once

#include <farad/audit.h>

namespace farad::audit {

/// What `farad audit` audits when it is given no program: two layers learn a function of random numbers by Adam, with
/// a moving average. Its reference is written out by hand.
Training builtin();

}  // namespace farad::audit
