#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/children.h"

namespace farad::bench {

using Words = std::vector<std::string>;
using Roles = std::map<std::string, void (*)(const Words&)>;

/// main() of a benchmark, which starts itself again in each of its roles: plays the one that the first word names, else
/// says `usage` if asked for --help, else calls `run`. Whatever is thrown is said, and makes it fail.
int run_program(int argc, char** argv, const char* usage, const Roles& roles, int (*run)(const Words&));

/// What every benchmark can be told.
struct Options {
  std::string json_path;
  std::string python = "/usr/bin/python3";
  bool peer = true;  ///< measure PyTorch as well
  std::vector<Placement> placements = {Placement::SameCore, Placement::TwoCores, Placement::Unpinned};
};
/// Gets the value that follows an option.
using Value = std::function<std::string()>;
/// `own` is asked first, and says whether the option was its own. Throws what `usage` says if it is nobody's.
void parse(const Words& words, const char* usage, Options& options,
           const std::function<bool(const std::string& option, const Value& value)>& own);

/// Where the roles of one measurement meet.
std::string fresh_meeting();

/// What bench/<script> measures as so many processes of PyTorch, each given its rank, their number, a port and `words`;
/// nothing if that fails, which is said.
nlohmann::json measure_torch(const Options& options, Placement placement, const std::string& script,
                             const Words& words = {}, int processes = 2);

/// Throws if they cannot be written.
void write_results(const Options& options, const nlohmann::json& results);

/// The instructions that a file of callgrind's counts. Throws if it has none.
double instructions_in(const std::string& path);

}  // namespace farad::bench
