#pragma once

#include <memory>
#include <string>
#include <vector>

#include "acer/environments/environment.h"

namespace farad::acer {

/// The names that make_environment() knows, without the programs.
std::vector<std::string> environment_names();

/// One of those, or "pipe:COMMAND" for a program that is asked over a pipe. Throws Error, naming those there are, for
/// another name.
std::unique_ptr<Environment> make_environment(const std::string& name);

}  // namespace farad::acer
