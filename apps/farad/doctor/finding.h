#pragma once

#include <string>
#include <vector>

namespace farad::doctor {

enum class Verdict { Good, Warning, Broken };

/// One thing that was looked at.
struct Finding {
  std::string section;
  std::string name;
  std::string value;
  Verdict verdict = Verdict::Good;
  std::string advice = {};  ///< how to mend it; empty if it is good
};

using Findings = std::vector<Finding>;

}  // namespace farad::doctor
