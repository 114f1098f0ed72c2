#pragma once

#include <farad/audit.h>

/// What the tests of the audit have in common.
namespace farad::test {

inline constexpr shared::Policy all_policies[] = {shared::Policy::Locked, shared::Policy::Hogwild,
                                                  shared::Policy::AllReduced, shared::Policy::Managed,
                                                  shared::Policy::Averaged};

/// An audit that takes a second.
inline audit::Options small(shared::Policy policy = shared::Policy::Locked) {
  audit::Options options;
  options.rounds = 12;
  options.policy = policy;
  return options;
}

}  // namespace farad::test
