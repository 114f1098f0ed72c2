#include "doctor/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/environment.h"

namespace farad::doctor {
namespace {

const char* mark(Verdict verdict) {
  switch (verdict) {
    case Verdict::Good:
      return "  ";
    case Verdict::Warning:
      return "! ";
    case Verdict::Broken:
      return "X ";
  }
  return "";
}

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::Good:
      return "good";
    case Verdict::Warning:
      return "warning";
    case Verdict::Broken:
      return "broken";
  }
  return "";
}

bool any_broken(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const auto& one) { return one.verdict == Verdict::Broken; });
}

}  // namespace

std::string as_text(const Findings& findings) {
  size_t width = 0;
  for (const auto& finding : findings) width = std::max(width, finding.name.size());

  std::string text;
  std::string section;
  std::string advice;
  for (const auto& finding : findings) {
    if (finding.section != section) {
      section = finding.section;
      text += (text.empty() ? "" : "\n") + section + '\n';
    }
    auto line = mark(finding.verdict) + finding.name + std::string(width - finding.name.size(), ' ') + "  ";
    line += finding.value;
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    if (!finding.advice.empty()) {
      advice += mark(finding.verdict) + finding.section + ", " + finding.name + ": " + finding.advice + '\n';
    }
  }
  text += advice.empty() ? "\nAll is well.\n" : "\nTo mend (X is broken, ! works but could be better)\n" + advice;
  return text;
}

std::string as_json(const Findings& findings) {
  auto list = nlohmann::json::array();
  for (const auto& finding : findings) {
    list.push_back({{"section", finding.section},
                    {"name", finding.name},
                    {"value", finding.value},
                    {"verdict", word(finding.verdict)},
                    {"advice", finding.advice}});
  }
  const nlohmann::json report{{"healthy", !any_broken(findings)}, {"findings", std::move(list)}};
  // Variables may hold bytes that are no UTF-8.
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

std::string variables_as_markdown() {
  std::string text = "| variable | value | default | read by | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const auto& row : base::variables()) {
    const std::string fallback = *row.fallback ? '`' + std::string(row.fallback) + '`' : "";
    text += "| `" + std::string(row.name) + "` | " + base::expectation(row) + " | " + fallback + " | " + row.readers +
            " | " + row.meaning + " |\n";
  }
  return text;
}

}  // namespace farad::doctor
