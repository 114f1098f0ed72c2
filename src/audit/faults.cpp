#include "audit/faults.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <farad/error.h>

#include <algorithm>
#include <sstream>

#include "audit/report.h"

namespace farad::audit {

const std::vector<Fault>& faults() {
  using shared::Policy;
  // Where all wait for all, one that brings nothing, or brings it twice, is an error and no silent defect.
  static const std::vector<Policy> one_by_one{Policy::Locked, Policy::Hogwild, Policy::Managed};
  static const std::vector<Policy> by_means{Policy::AllReduced, Policy::Managed};
  // Where writes race, what the optimizer remembers is not what one process would, and D5 cannot tell more.
  static const std::vector<Policy> without_races{Policy::Locked, Policy::AllReduced, Policy::Managed, Policy::Averaged};
  static const std::vector<Fault> all{
      {"accumulate", "B2", "gradients are never cleared: the optimizer gets the sum of all so far"},
      {"freeze-first", "B2", "the optimizer gets a worker's first gradient for ever"},
      {"alias-after-send", "B4", "what was sent is still the worker's own when it is used", 1, one_by_one},
      {"drop-worker", "B3/C1", "the gradients of the last worker are not applied", 2, one_by_one},
      {"duplicate", "B3", "one gradient is applied twice", 1, one_by_one},
      {"no-divide", "C1", "gradients are weighted by samples, and their sum is not divided", 1, by_means},
      {"divide-by-N", "C1", "gradients of unequal numbers of samples are averaged as if they were equal", 2, by_means},
      {"stale-average", "D5", "the moving average is read once and never again", 1, without_races},
      // Elsewhere one process steps for all, or each means to have an optimizer of its own.
      {"private-optimiser", "D5/B5", "each process has moments and a count of steps of its own", 2, {Policy::Locked}},
      {"private-step", "D5", "Adam's moments are shared, its count of steps is not", 2, {Policy::Locked}},
      {"wrong-graph", "A1/A5", "a parameter is not in the graph that is differentiated"},
      {"no-resync", "D1", "a worker reads the model once and never again"},
      {"same-seed", "B5", "all workers draw the same batches", 2},
      {"other-start", "B5", "workers begin with weights of their own", 2},
      {"no-lock", "D2/D3", "updates that are said to be one at a time are not", 2, {Policy::Locked}},
  };
  return all;
}

std::optional<Fault> fault_named(const std::string& name, const Training& training) {
  if (name.empty()) return {};
  std::string names;
  for (const auto* list : {&faults(), &training.faults}) {
    for (const auto& fault : *list) {
      if (fault.name == name) return fault;
      names += (names.empty() ? "" : ", ") + fault.name;
    }
  }
  throw Error("[audit] there is no fault \"" + name + "\" to plant; there are " + names);
}

void check_can_be_planted(const Fault& fault, const Options& options) {
  // One that is alone shares nothing with anybody: what it does is right, and nothing could be found.
  TORCH_CHECK(options.workers >= fault.least_workers, "[audit] ", fault.name, " is a defect of ", fault.least_workers,
              " workers or more, not of ", options.workers);
  const auto& policies = fault.policies;
  if (policies.empty() || std::find(policies.begin(), policies.end(), options.policy) != policies.end()) return;
  std::vector<const char*> names;
  for (const auto policy : policies) names.push_back(to_string(policy));
  TORCH_CHECK(false, "[audit] ", fault.name, " is no defect of policy ", to_string(options.policy),
              ": it is planted under ", c10::Join(", ", names));
}

bool caught(const Fault& fault, const Report& report) {
  const auto failed = report.failed();
  std::istringstream checks(fault.caught_by);
  for (std::string check; std::getline(checks, check, '/');) {
    if (std::find(failed.begin(), failed.end(), check) != failed.end()) return true;
  }
  return false;
}

}  // namespace farad::audit
