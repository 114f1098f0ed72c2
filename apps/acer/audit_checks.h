#pragma once

#include <farad/audit.h>

#include <functional>
#include <vector>

#include "acer/settings.h"

namespace farad::acer {

/// What has to hold for ACER beside what holds for every training. `make` makes a copy of the training that is audited,
/// `defect` tells which defect of the gradient was planted in it.
///
///   A2  the critic's and the entropy's part are the slopes of what they are to change; not for amounts
///   A3  the average policy is constant: it gets no gradient
///   A4  directions obey the bound, and change no more than it demands
///   A6  Retrace's targets are those computed by hand, whether windows end or are cut off
///   D6  stored behaviours are the policy that acted, and replays draw every step, the last of episodes included
std::vector<audit::Check> own_checks(const Settings& settings, const Spec& spec,
                                     const std::function<audit::Learner(const audit::Options&)>& make,
                                     const std::function<Defect(const audit::Options&)>& defect);

}  // namespace farad::acer
