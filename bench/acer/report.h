#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace farad::bench {

/// Prints the tables and what was to be reached, of so many seeds; false if something was not, or if one of farad's
/// trainings or audits has failed. Draws the curves of the trainings in `out` with each fault, if there were any, and
/// writes into the results what it has computed from them.
bool report(nlohmann::json& results, const std::string& out, int seeds);

}  // namespace farad::bench
