#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

#include "temporary_directory.h"

namespace farad::test {

/// Packages of PyPI in a virtual environment of their own, for tests by programs that others have written; gone with
/// it.
class PythonPackages {
 public:
  /// `names`: separated by blanks. Takes up to four minutes.
  explicit PythonPackages(const std::string& names)
      : are_there_(system("timeout 60 python3 -m venv venv && timeout 180 venv/bin/pip install --quiet " + names)) {}

  /// False where they cannot be installed, as without a network.
  bool are_there() const { return are_there_; }
  const std::string& directory() const { return directory_.path(); }

  /// Runs a script in the directory; true if it ended well.
  bool run(const std::string& script) const {
    std::ofstream(directory_.file("script.py")) << script;
    return system("venv/bin/python script.py", "");
  }

 private:
  bool system(const std::string& command, const std::string& redirection = " > log 2>&1") const {
    return std::system(("cd " + directory() + " && (" + command + ")" + redirection).c_str()) == 0;
  }

  const TemporaryDirectory directory_;
  const bool are_there_;
};

}  // namespace farad::test
