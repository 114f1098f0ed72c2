#pragma once

#include <farad/audit.h>

#include <optional>
#include <string>

namespace farad::audit {

/// Any training's or this one's; none for "". Throws Error if there is none of that name.
std::optional<Fault> fault_named(const std::string& name, const Training& training);
/// Throws, saying what it takes, unless it is a defect of a training with these options.
void check_can_be_planted(const Fault& fault, const Options& options);
/// Whether one of the checks that have to find it did.
bool caught(const Fault& fault, const Report& report);

}  // namespace farad::audit
