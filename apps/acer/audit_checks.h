#pragma once

#include <farad/audit.h>

#include <functional>
#include <vector>

#include "acer/settings.h"

namespace farad::acer {

/// What has to hold for ACER beside what holds for every training. `make` makes a copy of the training that is audited,
/// `defect` tells which defect of the gradient was planted in it.
///
///   A1  besides what the audit compares: batches whose actions are the policy's own, and of policies near and far off
///   A2  the critic's and the entropy's part are the slopes of what they are to change
///   A3  the average policy is constant, it gets no gradient; nor do the weights of actions have one
///   A4  directions obey the bound, and change no more than it demands, in the statistics that the training has
///   A5  policy, critic and entropy add up to the whole
///   A6  Retrace's targets are those computed by hand, whether windows end or are cut off
///   D6  stored behaviours are the policy that acted, and replays draw every step, the last of episodes included,
///       equally often
std::vector<audit::Check> own_checks(const Settings& settings, const Spec& spec,
                                     const std::function<audit::Learner(const audit::Options&)>& make,
                                     const std::function<Defect(const audit::Options&)>& defect);

}  // namespace farad::acer
