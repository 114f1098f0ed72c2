#pragma once

#include <farad/audit.h>

#include "acer/settings.h"

namespace farad::acer {

/// ACER for farad::audit: its gradient and its reference, checks of its own beside those that hold for every training,
/// and defects of its own, each of which one of the checks has to find.
///
/// A batch is made anew for each update, from the policy as it is: a few windows that the policy itself has acted in,
/// and as many by behaviours so far from it that importance weights are cut and the trust region acts.
///
/// Whoever makes a copy for the audit gets an Error if the settings plant a defect, or have an owner: the audit's own
/// loop would not have it.
audit::Training training_to_audit(const Settings& settings);

}  // namespace farad::acer
