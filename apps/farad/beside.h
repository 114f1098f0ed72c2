#pragma once

#include <string>
#include <vector>

namespace farad {

/// Becomes another program of ours: one that lies beside this one, or else one that is found as commands are. Those
/// that need libtorch are programs of their own. Returns only if there is none: 127, after saying so.
int become(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace farad
