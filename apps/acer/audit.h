#pragma once

#include <farad/audit.h>

#include "acer/settings.h"

namespace farad::acer {

/// ACER for farad::audit: its gradient and its reference, checks of its own beside those that hold for every training,
/// and defects of its own, each of which one of the checks has to find.
///
/// A batch is what an ActorLearner, the worker of a training, learns from: a window that it acts in by the policy as it
/// is, and some from its replay, which older policies have acted in, so far from it that importance weights are cut. As
/// the audit demands, it follows from the seed and the policy alone: each is made by a worker of its own, that has done
/// nothing but what it replays.
///
/// `given`: options of the command line that the audit has itself. Whoever makes a copy for the audit gets an Error if
/// there are any, or if the settings plant a defect or have an owner: the audit's own loop would not have it.
audit::Training training_to_audit(const Settings& settings, const std::vector<std::string>& given = {});

}  // namespace farad::acer
