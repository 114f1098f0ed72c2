#include "audit/faults.h"

#include <farad/error.h>

#include <algorithm>
#include <sstream>

namespace farad::audit {

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all{
      {"accumulate", "B2", "gradients are never cleared: the optimizer gets the sum of all so far"},
      {"freeze-first", "B2", "the optimizer gets a worker's first gradient for ever"},
      {"alias-after-send", "B4", "what was sent is still the worker's own when it is used"},
      {"drop-worker", "B3/C1", "the gradients of the last worker are not applied"},
      {"duplicate", "B3", "one gradient is applied twice"},
      {"no-divide", "C1", "gradients are weighted by samples, and their sum is not divided"},
      {"divide-by-N", "C1", "gradients of unequal numbers of samples are averaged as if they were equal"},
      {"stale-average", "D5", "the moving average is read once and never again"},
      {"private-optimiser", "D5/B5", "each process has moments and a count of steps of its own"},
      {"private-step", "D5", "Adam's moments are shared, its count of steps is not"},
      {"wrong-graph", "A1/A5", "a parameter is not in the graph that is differentiated"},
      {"no-resync", "D1", "a worker reads the model once and never again"},
      {"same-seed", "B5", "all workers draw the same batches"},
      {"no-lock", "D2/D3", "updates that are said to be one at a time are not"},
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

bool caught(const Fault& fault, const Report& report) {
  const auto failed = report.failed();
  std::istringstream checks(fault.caught_by);
  for (std::string check; std::getline(checks, check, '/');) {
    if (std::find(failed.begin(), failed.end(), check) != failed.end()) return true;
  }
  return false;
}

}  // namespace farad::audit
