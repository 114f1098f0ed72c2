#include "doctor/doctor.h"

#include <algorithm>
#include <iostream>
#include <iterator>

#include "doctor/checks.h"
#include "doctor/report.h"

namespace farad::doctor {

int doctor(const DoctorOptions& options) {
  if (options.variables) {
    std::cout << variables_as_markdown();
    return 0;
  }
  const auto environment = base::Environment::process();
  Findings findings;
  for (auto part : {check_versions(), check_torch(), check_machine(), check_transports(), check_trust(environment),
                    check_environment(environment)}) {
    std::move(part.begin(), part.end(), std::back_inserter(findings));
  }
  std::cout << (options.json ? as_json(findings) : as_text(findings));
  const bool broken = std::any_of(findings.begin(), findings.end(),
                                  [](const Finding& finding) { return finding.verdict == Verdict::Broken; });
  return broken ? 1 : 0;
}

}  // namespace farad::doctor
