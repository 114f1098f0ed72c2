#include "base/environment.h"

#include "doctor/checks.h"

namespace farad::doctor {

Findings check_environment(const base::Environment& environment) {
  Findings findings;
  for (const auto& row : base::variables()) {
    const bool set = environment.has(row.id);
    Finding finding{"environment", row.name, set ? *environment.text(row.id) : ""};
    if (set && row.kind == base::Kind::Secret) finding.value = "(set)";
    if (!set && *row.fallback) finding.value = std::string(row.fallback) + " (default)";
    if (const auto status = environment.check(row.id); !status.ok()) {
      finding.verdict = Verdict::Broken;
      finding.advice = "expected " + base::expectation(row) + ", or unset it";
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace farad::doctor
