#include "process/command/farad_command.h"

#include <utility>

namespace farad::test {

std::vector<std::string> farad_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), FARAD_COMMAND);
  return arguments;
}

namespace {

std::vector<std::string> run_program(int workers, std::vector<std::string> program, std::vector<std::string> options) {
  std::vector<std::string> arguments{"run", "-n", std::to_string(workers)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.push_back("--");
  arguments.insert(arguments.end(), program.begin(), program.end());
  return farad_command(std::move(arguments));
}

}  // namespace

std::vector<std::string> run_script(int workers, const std::string& script, std::vector<std::string> options) {
  return run_program(workers, {"sh", "-c", script}, std::move(options));
}

std::vector<std::string> run_worker(int workers, const std::string& mode, std::vector<std::string> options) {
  return run_program(workers, {COMMAND_WORKER, mode}, std::move(options));
}

}  // namespace farad::test
