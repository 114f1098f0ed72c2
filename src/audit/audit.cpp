#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <farad/audit.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "audit/board.h"
#include "audit/checks.h"
#include "audit/copy.h"
#include "audit/faults.h"
#include "audit/processes.h"
#include "audit/report.h"
#include "audit/worker.h"
#include "base/clock.h"

namespace farad::audit {
namespace {

/// Sums in one order, in every process; and no thread that a fork would leave behind.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }

 private:
  const int before_;
};

void check(const Training& training, const Options& options) {
  TORCH_CHECK(options.workers >= 1 && options.workers <= 32, "[audit] 1 to 32 workers, not ", options.workers);
  TORCH_CHECK(options.rounds >= 2, "[audit] at least 2 rounds, not ", options.rounds);
  TORCH_CHECK(options.dtype == c10::ScalarType::Float || options.dtype == c10::ScalarType::Double,
              "[audit] gradients of type Float or Double, not ", options.dtype);
  TORCH_CHECK(options.inject != "stale-average" || training.moving_average > 0, "[audit] \"", training.name,
              "\" has no moving average that could be stale");
  TORCH_CHECK(options.most_lost >= 0 && options.most_lost <= 1, "[audit] a part between 0 and 1 may be lost, not ",
              options.most_lost);
  TORCH_CHECK(options.patience.count() > 0, "[audit] processes need some time, not ", options.patience.count(), " ms");
  TORCH_CHECK(options.average_every >= 1, "[audit] copies are averaged after at least 1 step, not ",
              options.average_every);
}

Evidence evidence_in(Board& board, const Copy& first) {
  const auto& shape = board.shape();
  Evidence evidence;
  evidence.first = first.values();
  evidence.last = board.last().clone();
  for (int worker = 0; worker < shape.workers; ++worker) {
    for (uint64_t sequence = 1; sequence <= static_cast<uint64_t>(shape.rounds); ++sequence) {
      const auto& row = board.sent(worker, sequence);
      if (!row.there) continue;
      auto& sent = evidence.sent.emplace_back(
          Sent{worker, sequence, row.version_read, row.average_read, row.samples, row.batch, row.gradient, {}, {}, {}});
      if (!board.in_sample(worker, sequence)) continue;
      sent.values = board.read_values(worker, sequence).clone();
      sent.computed = board.sent_gradient(worker, sequence).clone();
      if (shape.averages) sent.average = board.read_average(worker, sequence).clone();
    }
  }
  for (uint64_t i = 0; i < board.applied(); ++i) {
    const auto& row = board.applied(i);
    auto& applied = evidence.applied.emplace_back(Applied{{}, row.version, row.gradient, row.finite, {}});
    for (int part = 0; part < row.count; ++part) {
      applied.parts.push_back({row.parts[part].worker, row.parts[part].sequence, row.parts[part].samples});
    }
    if (row.slot != 0) applied.values = board.applied_gradient(row.slot).clone();
  }
  std::sort(evidence.applied.begin(), evidence.applied.end(), [](const Applied& a, const Applied& b) {
    const auto key = [](const Applied& one) {
      return std::tuple(one.version, one.parts.front().sequence, one.parts.front().worker);
    };
    return key(a) < key(b);
  });
  return evidence;
}

std::vector<Finding> findings_of(const Materials& all) {
  std::vector<Finding> findings;
  for (const auto check :
       {check_reference, check_finite_differences, check_coverage, check_fidelity, check_freshness, check_exactly_once,
        check_isolation, check_memory, check_aggregation, check_one_step, check_any_number, check_cutting,
        check_staleness, check_losses, check_tearing, check_replay, check_optimizer}) {
    findings.push_back(check(all));
  }
  for (const auto& check : all.training.checks) findings.push_back(check(all.evidence, all.options));
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.check < b.check; });
  return findings;
}

}  // namespace

const Sent* Evidence::find_sent(int worker, uint64_t sequence) const {
  const auto found = std::lower_bound(sent.begin(), sent.end(), std::pair(worker, sequence),
                                      [](const Sent& one, const std::pair<int, uint64_t>& wanted) {
                                        return std::pair(one.worker, one.sequence) < wanted;
                                      });
  return found != sent.end() && found->worker == worker && found->sequence == sequence ? &*found : nullptr;
}

Report run(const Training& training, const Options& options) {
  const auto begun = base::Clock::now();
  Report report;
  report.training = training.name;
  report.options = options;
  report.planted = fault_named(options.inject, training);
  if (report.planted) check_can_be_planted(*report.planted, options);
  check(training, options);

  const OneThread one_thread;
  const Copy first(training, options);
  Board board({options.workers, options.rounds, first.elements(), options.dtype, training.moving_average > 0});
  const Setup setup{training, options, board, "farad-audit-" + std::to_string(::getpid())};
  const int managers = options.policy == shared::Policy::Managed ? 1 : 0;
  in_processes(
      options.workers + managers, [&](int number) { number < options.workers ? work(number, setup) : manage(setup); },
      options.patience);

  Materials all{training, options, board, evidence_in(board, first), {}, {}};
  all.conservation = conserve(training, options);
  // Nobody is forked from here on: beside a GPU libtorch starts threads for its first backward.
  all.replay = replay(training, options, all.evidence);
  all.evidence.replayed = all.replay.values;
  report.findings = findings_of(all);
  report.updates = all.evidence.applied.size();
  report.staleness_by_worker = staleness_of(all.evidence, options.workers);
  report.staleness = sum_of(report.staleness_by_worker);
  report.verdict = verdict_of(report);
  report.seconds = std::chrono::duration<double>(base::Clock::now() - begun).count();
  return report;
}

}  // namespace farad::audit
