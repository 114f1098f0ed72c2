// D: what comes of several processes working at once.

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <map>
#include <set>

#include "audit/checks.h"
#include "audit/copy.h"
#include "audit/numbers.h"

namespace farad::audit {
namespace {

uint64_t staleness(const Evidence& evidence, const Applied& update, const Part& part) {
  const auto* sent = evidence.find_sent(part.worker, part.sequence);
  if (!sent || update.version == 0) return 0;
  return update.version - 1 - std::min(sent->version_read, update.version - 1);
}

/// What lateness does, on the mean over updates that were late.
struct Lateness {
  double moved = 0;   ///< by how much the parameters had, from when they were read until the update was applied
  double cosine = 1;  ///< of the gradient that was applied with the one of that moment
};
Lateness effect_of_staleness(const Materials& all) {
  constexpr int most = 20;
  Copy copy(all.training, all.options);
  Lateness sum{0, 0};
  int compared = 0;
  for (const auto& update : all.evidence.applied) {
    const auto& part = update.parts.front();
    const auto* sent = all.evidence.find_sent(part.worker, part.sequence);
    const uint64_t before = update.version - 1;
    if (!sent || compared == most || staleness(all.evidence, update, part) == 0) continue;
    const auto kept = [&](uint64_t version) {
      return version < all.replay.values.size() && all.replay.values[version].defined();
    };
    if (!kept(before) || !kept(sent->version_read) || !all_finite(all.replay.values[before])) continue;
    const auto gradient_at = [&](uint64_t version, uint64_t average) {
      copy.load(all.replay.values[version]);
      if (copy.wants_average()) copy.load_average(all.replay.averages[average]);
      return copy.flat_gradient(copy.batch(part.worker, part.sequence));
    };
    sum.moved += length_of(all.replay.values[before] - all.replay.values[sent->version_read]);
    sum.cosine += cosine(gradient_at(sent->version_read, sent->average_read), gradient_at(before, before));
    ++compared;
  }
  return compared > 0 ? Lateness{sum.moved / compared, sum.cosine / compared} : Lateness{};
}

}  // namespace

std::vector<std::vector<uint64_t>> staleness_of(const Evidence& evidence, int workers) {
  std::vector<std::vector<uint64_t>> histograms(static_cast<size_t>(workers));
  for (const auto& update : evidence.applied) {
    for (const auto& part : update.parts) {
      const uint64_t late = staleness(evidence, update, part);
      auto& histogram = histograms[static_cast<size_t>(part.worker)];
      if (histogram.size() <= late) histogram.resize(late + 1);
      ++histogram[late];
    }
  }
  return histograms;
}

std::vector<uint64_t> sum_of(const std::vector<std::vector<uint64_t>>& histograms) {
  std::vector<uint64_t> sum;
  for (const auto& one : histograms) {
    sum.resize(std::max(sum.size(), one.size()));
    for (size_t late = 0; late < one.size(); ++late) sum[late] += one[late];
  }
  return sum;
}

Finding check_staleness(const Materials& all) {
  const char* claim = "workers read the model anew for each gradient";
  if (all.averages()) {  // They read their own copies, whose steps have no versions; the replay knows their values.
    return finding("D1", claim, static_cast<double>(all.replay.other_values), 0,
                   "gradients of values that their worker's copy did not have");
  }
  const auto histogram = sum_of(staleness_of(all.evidence, all.options.workers));
  // The times from reading to applying of one worker do not overlap if it reads anew each time. So each update makes at
  // most one of its own late, unless it is the one by it, and the mean is at most the number of others, however slow
  // anybody is. Where a worker goes on while what it sent still waits, an update may fall into as many intervals as may
  // wait; and where updates are made of several gradients, there are fewer of them.
  const int at_once = all.options.policy == shared::Policy::Managed ? shared::Options().queue + 1 : 1;
  std::set<int> workers;
  double gradients = 0;
  for (const auto& update : all.evidence.applied) {
    for (const auto& part : update.parts) workers.insert(part.worker);
    gradients += static_cast<double>(update.parts.size());
  }
  const auto updates = static_cast<double>(all.evidence.applied.size());
  const double most = at_once * static_cast<double>(workers.size()) * updates / std::max(1.0, gradients) - 1;
  const auto late = effect_of_staleness(all);
  return finding("D1", claim, mean_lateness(histogram), std::max(0.0, most),
                 "mean staleness; most " + std::to_string(histogram.empty() ? 0 : histogram.size() - 1) +
                     "; meanwhile the parameters moved by " + number(late.moved) +
                     ", cosine with the gradient of the moment " + number(late.cosine));
}

Finding check_losses(const Materials& all) {
  const auto& found = all.conservation;
  const auto note = "mean of " + std::to_string(found.updates) + " updates; worst element " + number(found.worst_lost) +
                    "; " + std::to_string(found.wrong) + " sums of integers wrong";
  if (!all.locks()) return finding("D2", "few element updates are lost", found.mean_lost, all.options.most_lost, note);
  return finding("D2", "no element update is lost", found.mean_lost + static_cast<double>(found.wrong), 0, note);
}

Finding check_tearing(const Materials& all) {
  const auto& found = all.conservation;
  const auto note =
      std::to_string(found.torn) + " of " + std::to_string(found.snapshots) + " snapshots not of one version" +
      (found.most_inside > 0 ? "; at most " + std::to_string(found.most_inside) + " updates at once" : std::string());
  const auto overlaps = found.most_inside > 1 ? found.most_inside - 1 : 0;
  const auto value = static_cast<double>(found.torn + found.said_torn + overlaps);
  if (!all.locks()) return {"D3", "updates overlap, as the policy lets them", value, 0, Outcome::Reported, note};
  return finding("D3", "nobody sees an update half done", value, 0, note);
}

Finding check_replay(const Materials& all) {
  const double moved = length_of(all.evidence.last.sub(all.evidence.first));
  const double apart = length_of(all.evidence.last.sub(all.replay.values.back()));
  const double value = moved > 0 ? apart / moved : apart;
  std::string note =
      same(all.evidence.last, all.replay.values.back()) ? "equal to the bit" : "relative to the way made";
  if (all.replay.other_batches > 0) note += "; " + std::to_string(all.replay.other_batches) + " batches were others";
  const char* claim = "one process that applies the same in this order gets the same";
  if (!all.locks()) return {"D4", claim, value, 0, Outcome::Reported, note};
  if (all.replay.other_values > 0) {
    note += "; " + std::to_string(all.replay.other_values) + " workers had read what no version was";
  }
  const auto others = static_cast<double>(all.replay.other_batches + all.replay.other_values);
  return finding("D4", claim, value + others, 0, note);
}

Finding check_optimizer(const Materials& all) {
  const char* claim = "the optimizer and the average remember what one process would";
  double stepped = 0;
  for (size_t i = 0; i < all.replay.probed.size(); ++i) {
    stepped = worse(stepped, largest_difference(all.board.probed(static_cast<int>(i)), all.replay.probed[i]));
  }
  double value = stepped;
  std::string note = "after one more step " + number(stepped);
  if (all.averages()) note += ", worst of the copies";
  if (all.training.moving_average > 0) {
    const double average = largest_difference(all.board.last_average(), all.replay.averages.back());
    const bool moved = !same(all.board.last_average(), all.evidence.first);
    value = worse(value, average);
    note += "; moving average " + number(average) + (moved ? "" : ": it is what it was at first");
  }
  if (!all.locks()) return {"D5", claim, value, 0, Outcome::Reported, note};
  return finding("D5", claim, value, 0, note);
}

}  // namespace farad::audit
