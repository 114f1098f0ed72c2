#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace farad::bench {

/// An SVG of lines over the number of workers, both axes logarithmic: by shape and size, the figure called `what`.
std::string plot_scaling(const nlohmann::json& scaling, const std::string& what, const std::string& title);

}  // namespace farad::bench
