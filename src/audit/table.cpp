#include "audit/table.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

namespace farad::audit {
namespace {

using nlohmann::json;

std::string text_of(const json& value) {
  if (!value.is_number()) return "no number";
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value.get<double>());
  return text;
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string row_of(const json& finding, size_t claims) {
  const auto outcome = finding.at("outcome").get<std::string>();
  std::string row = outcome == "failed" ? "X " : outcome == "passed" ? "  " : "- ";
  row += padded(finding.at("check").get<std::string>(), 4) + padded(finding.at("claim").get<std::string>(), claims + 2);
  row += padded(outcome == "skipped" ? "" : text_of(finding.at("value")), 11);
  row += padded(outcome == "passed" || outcome == "failed" ? text_of(finding.at("tolerance")) : outcome, 10);
  row += finding.at("note").get<std::string>();
  return row.substr(0, row.find_last_not_of(' ') + 1) + '\n';
}

std::string heading(const json& report) {
  const auto& options = report.at("options");
  return report.at("training").get<std::string>() + ": " + options.at("workers").dump() + " workers, " +
         options.at("rounds").dump() + " rounds, " + options.at("policy").get<std::string>() + ", " +
         options.at("dtype").get<std::string>() + ", seed " + options.at("seed").dump() + "; " +
         report.at("updates").dump() + " updates, " + text_of(report.at("seconds")) + " s\n";
}

std::string about_the_fault(const json& report) {
  const auto& fault = report.at("injected");
  if (fault.is_null()) return "";
  return "Planted: " + fault.at("name").get<std::string>() + " (" + fault.at("what").get<std::string>() + "), which " +
         fault.at("caught_by").get<std::string>() + " has to find: " + (fault.at("caught") ? "found" : "NOT FOUND") +
         '\n';
}

}  // namespace

std::string table_of(const json& report) {
  size_t claims = 0;
  for (const auto& finding : report.at("findings")) {
    claims = std::max(claims, finding.at("claim").get_ref<const std::string&>().size());
  }
  std::string text = heading(report) + "\n  " + padded("", 4) + padded("claim", claims + 2) + padded("value", 11) +
                     padded("at most", 10) + "what was compared\n";
  for (const auto& finding : report.at("findings")) text += row_of(finding, claims);
  return text + '\n' + about_the_fault(report) + report.at("verdict").get<std::string>() + ": " +
         report.at("answer").get<std::string>() + '\n';
}

}  // namespace farad::audit
