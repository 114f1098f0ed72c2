#include "audit/report.h"

#include <farad/error.h>
#include <farad/version.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "audit/checks.h"
#include "audit/faults.h"
#include "audit/table.h"

namespace farad::audit {
namespace {

using nlohmann::json;

constexpr std::pair<shared::Policy, const char*> policies[] = {
    {shared::Policy::Locked, "locked"},         {shared::Policy::Hogwild, "hogwild"},
    {shared::Policy::AllReduced, "allreduced"}, {shared::Policy::Managed, "managed"},
    {shared::Policy::Averaged, "averaged"},
};

const char* word(Outcome outcome) {
  switch (outcome) {
    case Outcome::Passed:
      return "passed";
    case Outcome::Failed:
      return "failed";
    case Outcome::Reported:
      return "reported";
    case Outcome::Skipped:
      return "skipped";
  }
  return "";
}

double value_of(const Report& report, const char* check) {
  const auto* found = report.find(check);
  return found ? found->value : 0;
}

/// So late was this part of the updates, or less.
size_t quantile(const std::vector<uint64_t>& histogram, double part) {
  uint64_t all = 0, seen = 0;
  for (const uint64_t count : histogram) all += count;
  for (size_t late = 0; late < histogram.size(); ++late) {
    seen += histogram[late];
    if (static_cast<double>(seen) >= part * static_cast<double>(all)) return late;
  }
  return 0;
}

json as_json(const std::vector<uint64_t>& histogram) {
  return {{"mean", mean_lateness(histogram)},
          {"p50", quantile(histogram, 0.5)},
          {"p99", quantile(histogram, 0.99)},
          {"max", quantile(histogram, 1)},
          {"histogram", histogram}};
}

/// Of all, and of each under its number.
json staleness_in(const Report& report) {
  auto staleness = as_json(report.staleness);
  staleness["flagged"] = report.unusually_late();
  auto& workers = staleness["workers"] = json::object();
  for (size_t i = 0; i < report.staleness_by_worker.size(); ++i) {
    workers[std::to_string(i)] = as_json(report.staleness_by_worker[i]);
  }
  return staleness;
}

json injected(const Report& report) {
  if (!report.planted) return nullptr;
  return {{"name", report.planted->name},
          {"what", report.planted->what},
          {"caught_by", report.planted->caught_by},
          {"caught", caught(*report.planted, report)}};
}

/// JSON knows no infinity.
json finite(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json as_json(const Report& report) {
  auto findings = json::array();
  for (const auto& one : report.findings) {
    findings.push_back({{"check", one.check},
                        {"claim", one.claim},
                        {"value", finite(one.value)},
                        {"tolerance", one.tolerance},
                        {"outcome", word(one.outcome)},
                        {"note", one.note}});
  }
  const auto& options = report.options;
  return {{"training", report.training},
          {"farad", FARAD_VERSION},
          {"torch", TORCH_VERSION},
          {"options",
           {{"workers", options.workers},
            {"rounds", options.rounds},
            {"policy", to_string(options.policy)},
            {"dtype", options.dtype == c10::ScalarType::Float ? "f32" : "f64"},
            {"seed", options.seed},
            {"most_lost", options.most_lost}}},
          {"injected", injected(report)},
          {"verdict", to_string(report.verdict)},
          {"passed", report.passed()},
          {"answer", answer_of(report)},
          {"updates", report.updates},
          {"staleness", staleness_in(report)},
          {"seconds", report.seconds},
          {"findings", std::move(findings)}};
}

}  // namespace

double mean_lateness(const std::vector<uint64_t>& histogram) {
  double sum = 0, count = 0;
  for (size_t late = 0; late < histogram.size(); ++late) {
    sum += static_cast<double>(late) * static_cast<double>(histogram[late]);
    count += static_cast<double>(histogram[late]);
  }
  return sum / std::max(1.0, count);
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

Finding finding(std::string check, std::string claim, double value, double tolerance, std::string note) {
  return {std::move(check), std::move(claim), value, tolerance, value <= tolerance ? Outcome::Passed : Outcome::Failed,
          std::move(note)};
}

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::Exact:
      return "EXACT";
    case Verdict::Equivalent:
      return "EQUIVALENT";
    case Verdict::StaleCorrect:
      return "STALE-CORRECT";
    case Verdict::Lossy:
      return "LOSSY";
    case Verdict::Broken:
      return "BROKEN";
  }
  return "";
}

const char* to_string(shared::Policy policy) {
  for (const auto& [known, name] : policies) {
    if (known == policy) return name;
  }
  return "?";
}

shared::Policy policy_named(const std::string& name) {
  std::string names;
  for (const auto& [policy, known] : policies) {
    if (name == known) return policy;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw Error("[audit] there is no policy \"" + name + "\"; there are " + names);
}

Verdict verdict_of(const Report& report) {
  if (!report.failed().empty()) return Verdict::Broken;
  const bool races = report.options.policy == shared::Policy::Hogwild;
  if (races && value_of(report, "D2") + value_of(report, "D3") > 0) return Verdict::Lossy;
  if (report.staleness.size() > 1) return Verdict::StaleCorrect;
  // Its gradients are the sums of several workers', and those of one process are not added up in the same order.
  const bool together =
      report.options.policy == shared::Policy::AllReduced || report.options.policy == shared::Policy::Managed;
  return together && value_of(report, "C1") > 0 ? Verdict::Equivalent : Verdict::Exact;
}

std::string answer_of(const Report& report) {
  if (report.planted && !caught(*report.planted, report)) {
    return "the audit has not found the defect that was planted, " + report.planted->name + ", by " +
           report.planted->caught_by + ", which has to find it";
  }
  const std::string late = "late by " + number(mean_lateness(report.staleness)) + " updates on the mean and " +
                           std::to_string(quantile(report.staleness, 1)) + " at most";
  switch (report.verdict) {
    case Verdict::Exact:
      if (report.options.policy == shared::Policy::Averaged) {
        return "this training propagates its gradients correctly: it computes, to the bit, what one process computes "
               "that trains as many copies and averages them likewise";
      }
      return "this training propagates its gradients correctly: it computes, to the bit, what one process computes";
    case Verdict::Equivalent:
      return "this training propagates its gradients correctly: it computes what one process computes, but for the "
             "order of sums";
    case Verdict::StaleCorrect:
      return "this training propagates its gradients correctly: each is right for the version that its worker read, "
             "was applied exactly once, and was " +
             late;
    case Verdict::Lossy:
      return "this training propagates its gradients, each right for the version that its worker read and " + late +
             "; " + number(100 * value_of(report, "D2")) + " % of the element updates were lost where two met";
    case Verdict::Broken:
      break;
  }
  std::string checks;
  for (const auto& check : report.failed()) checks += (checks.empty() ? "" : ", ") + check;
  return "this training does not propagate its gradients correctly: see " + checks;
}

const Finding* Report::find(const std::string& check) const {
  const auto found =
      std::find_if(findings.begin(), findings.end(), [&](const Finding& one) { return one.check == check; });
  return found == findings.end() ? nullptr : &*found;
}

std::vector<std::string> Report::failed() const {
  std::vector<std::string> checks;
  for (const auto& one : findings) {
    if (one.outcome == Outcome::Failed) checks.push_back(one.check);
  }
  return checks;
}

bool Report::unusually_late() const {
  const double workers = options.workers;
  return mean_lateness(staleness) > 2 * workers || static_cast<double>(quantile(staleness, 1)) > 10 * workers;
}

std::string Report::json() const {
  return as_json(*this).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string Report::table() const { return table_of(as_json(*this)); }

}  // namespace farad::audit
