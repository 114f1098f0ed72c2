#pragma once

#include <string>
#include <vector>

#include "process/command/command.h"

namespace farad::test {

/// `farad` with these arguments.
std::vector<std::string> farad_command(std::vector<std::string> arguments);
/// `farad run -n N` with a shell script as the program.
std::vector<std::string> run_script(int workers, const std::string& script, std::vector<std::string> options = {});
/// `farad run -n N` with the test worker in this mode.
std::vector<std::string> run_worker(int workers, const std::string& mode, std::vector<std::string> options = {});

}  // namespace farad::test
