#pragma once

#include <nlohmann/json.hpp>

namespace farad::bench {

/// An all_reduce of two members on machines of their own, as far as they can tell, with 1 Gbit/s between them. Where
/// the system does not let us make such, "skipped" says why.
nlohmann::json measure_link();

}  // namespace farad::bench
