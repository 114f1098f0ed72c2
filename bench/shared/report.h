#pragma once

#include <nlohmann/json.hpp>

namespace farad::bench {

/// Prints the tables and what was to be reached; false if something was not.
bool report(const nlohmann::json& results);

}  // namespace farad::bench
