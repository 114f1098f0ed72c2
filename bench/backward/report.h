#pragma once

#include <nlohmann/json.hpp>

namespace farad::bench {

/// Prints the tables and what was to be reached; false if something was not.
bool report(const nlohmann::json& results);

/// Instructions a node by engine: "farad", "context", "torch". Prints them; false if ours needs too many.
bool report_instructions(const nlohmann::json& per_node);

/// Of simulated passes: by shape and number of workers, "ms" and "messages".
void report_scaling(const nlohmann::json& scaling);

}  // namespace farad::bench
