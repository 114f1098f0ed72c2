#pragma once

#include <string>

#include "doctor/finding.h"

namespace farad::doctor {

/// For people: by section, what is wrong at the end once more, with how to mend it.
std::string as_text(const Findings& findings);
/// For programs: {"healthy": ..., "findings": [...]}.
std::string as_json(const Findings& findings);
/// The table of environment variables as docs/guide/environment.md has it.
std::string variables_as_markdown();

}  // namespace farad::doctor
