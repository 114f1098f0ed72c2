#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace farad::audit {

struct AuditOptions {
  int workers = 2;
  int rounds = 25;
  std::string policy = "locked";
  std::string dtype = "f64";
  uint64_t seed = 1;
  std::string inject;
  double most_lost = 0.01;           ///< Hogwild: which part of the element updates may be lost
  double patience = 30;              ///< seconds, for the processes of one part of the audit
  std::string json;                  ///< where to write the report, "-" = standard output instead of the table
  std::vector<std::string> program;  ///< with its arguments; the built-in one if empty
};

/// Has the program audit itself and prints what it found. 0 if it passed, 1 if not, 2 if it could not be told.
int audit(const AuditOptions& options);

}  // namespace farad::audit
