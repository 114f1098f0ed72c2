#pragma once

#include <farad/audit.h>

#include <string>

namespace farad::audit {

/// The strongest that the findings allow.
Verdict verdict_of(const Report& report);
/// One sentence for people.
std::string answer_of(const Report& report);

const char* to_string(shared::Policy policy);
/// "locked" and so on; throws Error with those that there are.
shared::Policy policy_named(const std::string& name);

}  // namespace farad::audit
