#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace farad::bench {

/// An SVG of the loss over so many milliseconds of training under each policy, on a logarithmic scale.
std::string draw_convergence(const nlohmann::json& policies, int milliseconds);

}  // namespace farad::bench
