#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace farad::run {

struct RunOptions {
  int workers = 0;
  std::optional<bool> tag_output;        ///< unset: where it goes to a terminal
  std::chrono::milliseconds timeout{0};  ///< for the whole job; 0 = none
  std::chrono::milliseconds grace{0};    ///< between asking the workers to end and killing them
  std::vector<std::string> program;      ///< its name and its arguments; not empty
};

}  // namespace farad::run
