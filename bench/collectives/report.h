#pragma once

#include <nlohmann/json.hpp>

namespace farad::bench {

/// Prints the tables and what was to be reached; false if something was not, or was asked for and not measured.
/// `with_peer`: PyTorch was.
bool report(const nlohmann::json& results, bool with_peer);

}  // namespace farad::bench
