#pragma once

#include <farad/audit.h>

namespace farad::audit {

/// Training::make, with the references that are registered without naming a learner.
Learner make_learner(const Training& training, const Options& options);

}  // namespace farad::audit
