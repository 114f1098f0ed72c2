#pragma once

#include <farad/audit.h>

#include <vector>

#include "audit/board.h"
#include "audit/conservation.h"
#include "audit/replay.h"

namespace farad::audit {

/// All that the checks of every training look at.
struct Materials {
  const Training& training;
  const Options& options;
  Board& board;
  Evidence evidence;
  Replay replay;
  Conservation conservation;

  bool single() const { return options.dtype == c10::ScalarType::Float; }
  bool locks() const { return options.policy != shared::Policy::Hogwild; }
  bool averages() const { return options.policy == shared::Policy::Averaged; }
  /// What two orders of the same sum may differ by.
  double sum_tolerance() const { return single() ? 2e-6 : 1e-12; }
  /// What two ways to compute the same gradient may differ by.
  double gradient_tolerance() const { return single() ? 1e-5 : 1e-10; }
};

// A: is the gradient of one process right?
Finding check_reference(const Materials& all);           // A1
Finding check_finite_differences(const Materials& all);  // A2
Finding check_coverage(const Materials& all);            // A5
// B: does what a worker computed arrive, once, and nothing else?
Finding check_fidelity(const Materials& all);      // B1
Finding check_freshness(const Materials& all);     // B2
Finding check_exactly_once(const Materials& all);  // B3
Finding check_isolation(const Materials& all);     // B4
Finding check_memory(const Materials& all);        // B5
// C: do several workers make the gradient that one process makes?
Finding check_aggregation(const Materials& all);  // C1
Finding check_one_step(const Materials& all);     // C2
Finding check_any_number(const Materials& all);   // C3
Finding check_cutting(const Materials& all);      // C4
// D: what comes of working at once?
Finding check_staleness(const Materials& all);  // D1
Finding check_losses(const Materials& all);     // D2
Finding check_tearing(const Materials& all);    // D3
Finding check_replay(const Materials& all);     // D4
Finding check_optimizer(const Materials& all);  // D5

/// How many updates of each worker were so many versions late.
std::vector<std::vector<uint64_t>> staleness_of(const Evidence& evidence, int workers);
/// Of all of them together.
std::vector<uint64_t> sum_of(const std::vector<std::vector<uint64_t>>& histograms);

/// How late one was on the mean; 0 if there is none.
double mean_lateness(const std::vector<uint64_t>& histogram);

/// "1.5e-12"; whole numbers as such.
std::string number(double value);

}  // namespace farad::audit
