// B: what workers computed, and what the optimizer consumed.

#include <ATen/TensorOperators.h>
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "audit/aggregation.h"
#include "audit/checks.h"
#include "audit/copy.h"
#include "audit/numbers.h"

namespace farad::audit {

namespace {

/// What an update should have been, `of(sent)` being each part of it: their mean. Undefined if a part is not known.
template <class Of>
at::Tensor mean_of_parts(const Materials& all, const Applied& update, Of of) {
  std::vector<at::Tensor> gradients;
  std::vector<double> samples;
  for (const auto& part : update.parts) {
    const auto* sent = all.evidence.find_sent(part.worker, part.sequence);
    if (!sent || !sent->values.defined()) return {};
    gradients.push_back(of(*sent));
    samples.push_back(part.samples);
  }
  return weighted_mean(gradients, samples);
}

}  // namespace

Finding check_fidelity(const Materials& all) {
  const auto note = "of " + std::to_string(all.evidence.applied.size()) + " updates";
  const bool alone = std::all_of(all.evidence.applied.begin(), all.evidence.applied.end(),
                                 [](const Applied& update) { return update.parts.size() == 1; });
  if (alone) {
    uint64_t different = 0;
    for (const auto& update : all.evidence.applied) {
      const auto* sent = all.evidence.find_sent(update.parts[0].worker, update.parts[0].sequence);
      different += !sent || sent->gradient != update.gradient;
    }
    return finding("B1", "the optimizer consumed what the worker had, to the bit", static_cast<double>(different), 0,
                   note);
  }
  double worst = 0;
  int compared = 0;
  for (const auto& update : all.evidence.applied) {
    const auto expected = mean_of_parts(all, update, [](const Sent& sent) { return sent.computed; });
    if (!expected.defined() || !update.values.defined()) continue;
    const double apart = relative_distance(update.values, expected);
    worst = worse(worst, apart);
    ++compared;
  }
  if (compared == 0) worst = std::numeric_limits<double>::infinity();  // Nothing was seen to be right.
  return finding("B1", "the optimizer consumed the mean of what the workers had", worst, all.sum_tolerance(),
                 std::to_string(compared) + " " + note + ", relative");
}

Finding check_freshness(const Materials& all) {
  Copy copy(all.training, all.options);
  double worst = 0;
  int compared = 0;
  // Of one worker: what it would have sent had it never cleared its gradients, and whether it sends the same for ever.
  std::map<int, at::Tensor> sums;
  std::map<int, uint64_t> previous;
  double like_sum = 0;
  uint64_t repeated = 0;
  for (const auto& update : all.evidence.applied) {
    const auto expected = mean_of_parts(all, update, [&](const Sent& sent) {
      copy.load(sent.values);
      if (copy.wants_average()) copy.load_average(sent.average);
      return copy.flat_reference(copy.batch(sent.worker, sent.sequence));
    });
    if (!expected.defined() || !update.values.defined()) continue;
    const auto& first = update.parts.front();
    const double apart = relative_distance(update.values, expected);
    worst = worse(worst, apart);
    ++compared;
    auto& sum = sums[first.worker];
    sum = sum.defined() ? sum + expected : expected.clone();
    if (first.sequence > 1) like_sum += cosine(update.values, sum);
    const auto before = previous.find(first.worker);
    repeated += before != previous.end() && before->second == update.gradient;
    previous[first.worker] = update.gradient;
  }
  like_sum /= std::max(1, compared);
  std::string note =
      std::to_string(compared) + " updates, relative; cosine with the sum of all so far " + number(like_sum);
  if (worst > all.gradient_tolerance() && like_sum > 0.99) note += ": they are never cleared";
  if (repeated > 0) note += "; " + std::to_string(repeated) + " are the same as the one before";
  return finding("B2", "it is the gradient of the version that was read", worst, all.gradient_tolerance(), note);
}

Finding check_exactly_once(const Materials& all) {
  std::map<std::pair<int, uint64_t>, int> times;
  for (const auto& sent : all.evidence.sent) times[{sent.worker, sent.sequence}] = 0;
  uint64_t parts = 0;
  for (const auto& update : all.evidence.applied) {
    for (const auto& part : update.parts) ++times[{part.worker, part.sequence}];
    parts += update.parts.size();
  }
  uint64_t missing = 0, doubled = 0;
  for (const auto& [which, count] : times) {
    missing += count == 0;
    doubled += count > 1;
  }
  const auto& ended = all.board.ended();
  const auto applied = static_cast<uint64_t>(all.evidence.applied.size());
  const bool other_version = !all.averages() && ended.version != applied;  // There it counts averages.
  const uint64_t miscounted = other_version || ended.applied != parts;
  return finding("B3", "each gradient was applied exactly once", static_cast<double>(missing + doubled + miscounted), 0,
                 std::to_string(missing) + " missing, " + std::to_string(doubled) + " twice; the model counts " +
                     std::to_string(ended.version));
}

Finding check_isolation(const Materials& all) {
  uint64_t poisoned = 0;
  for (const auto& update : all.evidence.applied) poisoned += !update.finite;
  const bool ended_well = all_finite(all.evidence.last);
  return finding("B4", "what a worker does to its gradient afterwards harms nobody",
                 static_cast<double>(poisoned + !ended_well), 0,
                 std::to_string(poisoned) + " updates with the poison of a worker in them" +
                     (ended_well ? "" : ", and so the parameters"));
}

Finding check_memory(const Materials& all) {
  auto& rows = all.board;
  std::string note;
  const auto complain = [&](bool wrong, const std::string& what) {
    if (wrong) note += (note.empty() ? "" : "; ") + what;
    return wrong ? 1 : 0;
  };
  int wrong = 0;
  std::set<uint64_t> gradients;
  for (int i = 0; i < all.options.workers; ++i) {
    const auto& seen = rows.joined(i);
    const auto& first = rows.joined(0);
    const auto name = "worker " + std::to_string(i);
    if (!all.averages()) {  // There each has a copy, and means to.
      wrong += complain(seen.inode == 0 || seen.inode != first.inode || seen.device != first.device,
                        name + " has another memory");
      wrong += complain(seen.canary != rows.ended().canary, name + " does not see what worker 0 writes");
    }
    wrong += complain(seen.values != first.values, name + " began with other values");
    wrong += complain(!gradients.insert(rows.sent(i, 1).gradient).second, name + " has the gradient of another one");
  }
  if (note.empty()) note = std::to_string(all.options.workers) + " workers";
  return finding("B5", "all have one memory, and each its own data", wrong, 0, note);
}

}  // namespace farad::audit
