#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace farad::audit {

/// The report of an audit, as Report::json() has it, for people; its last line is the answer. Needs no libtorch: the
/// farad command prints what a program that has it found.
std::string table_of(const nlohmann::json& report);

}  // namespace farad::audit
