#pragma once

#include <string>

#include "acer/settings.h"

namespace farad::acer {

/// What the linker calls the program that runs, in hexadecimal digits: the same for the same code, compiler and
/// options, and for nothing else. Empty if it was told not to.
std::string build_id();

/// Writes all that decides a training, what it was built from, and where it is, to config.json in its directory.
void write_config(const Settings& settings);

}  // namespace farad::acer
