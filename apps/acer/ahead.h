#pragma once

#include <span>
#include <vector>

#include "acer/batch.h"
#include "acer/rules.h"

namespace farad::acer {

/// What is ahead of a window. `values`: of the states of all steps, then of those after each window.
inline double worth_ahead(const Batch& batch, size_t window, std::span<const double> values, Defect defect) {
  const auto& [begin, length, ending] = batch.windows()[window];
  const double last = values[static_cast<size_t>(begin + length - 1)],
               after = values[static_cast<size_t>(batch.steps()) + window];
  switch (defect) {
    case Defect::DoneAsTruncation:
      return after;
    case Defect::TruncationAsDone:
      return 0;
    case Defect::LastStored:
      return ending == Ending::Terminated ? 0 : last;
    default:
      return ending == Ending::Terminated ? 0 : after;
  }
}

/// What is taken off a target to have an advantage is, in one of the defects, nothing where the episode ends next. Of
/// values that targets were computed from before.
inline void spoil_baselines(const Batch& batch, Defect defect, std::vector<double>& values) {
  if (defect != Defect::BaselineCut) return;
  for (const auto& [begin, length, ending] : batch.windows()) {
    if (ending == Ending::Terminated) values[static_cast<size_t>(begin + length - 1)] = 0;
  }
}

/// The rules for the directions of a batch: the mean of gradients would be bounded as if delta were so much greater.
inline Rules rules_for_directions(Rules rules, double steps) {
  if (rules.defect == Defect::BoundAfterMean) rules.trust *= steps;
  return rules;
}

}  // namespace farad::acer
