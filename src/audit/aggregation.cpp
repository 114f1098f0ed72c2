// C: the gradient of several workers against that of one process on all their samples.

#include "audit/aggregation.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "audit/checks.h"
#include "audit/copy.h"
#include "audit/numbers.h"
#include "optim/kinds.h"

namespace farad::audit {
namespace {

constexpr int parts = 8;
constexpr int rounds = 5;

struct Together {
  at::Tensor of_all;  ///< what the optimizer consumed of the workers' first gradients, together
  at::Tensor alone;   ///< what one process computes
  std::string sizes;
};

/// What the optimizer was given of the workers' first gradients, brought together: by the model where that does it,
/// else here. What was never applied is not in it.
at::Tensor consumed(const Materials& all) {
  std::vector<at::Tensor> gradients;
  std::vector<double> samples;
  for (const auto& update : all.evidence.applied) {
    if (update.parts.front().sequence != 1 || !update.values.defined()) continue;
    gradients.push_back(update.values);
    // By what the workers had, whatever they have told the model: that would be as wrong as what it makes of it.
    double brought = 0;
    for (const auto& part : update.parts) brought += static_cast<double>(all.board.sent(part.worker, 1).samples);
    samples.push_back(brought);
  }
  return gradients.empty() ? at::zeros_like(all.evidence.first) : weighted_mean(gradients, samples);
}

Together first_round(const Materials& all) {
  Copy copy(all.training, all.options);
  copy.load(all.evidence.first);
  if (copy.wants_average()) copy.load_average(all.evidence.first);
  std::vector<Batch> batches;
  Together found;
  for (int worker = 0; worker < all.options.workers; ++worker) {
    batches.push_back(copy.batch(worker, 1));
    found.sizes += (worker == 0 ? "" : ", ") + std::to_string(all.board.sent(worker, 1).samples);
  }
  found.of_all = consumed(all);
  found.alone = copy.flat_gradient(copy.concatenate(batches));
  return found;
}

/// Parameters that an optimizer of their own steps.
class Student {
 public:
  Student(const Training& training, const Options& options)
      : copy_(training, options),
        optimizer_(optim::make_optimizer(training.optimizer, copy_.trained())),
        rate_(training.optimizer.options.at("lr")) {}

  void step(const at::Tensor& flat) {
    for (const auto& tensor : copy_.trained()) tensor.mutable_grad() = at::zeros_like(tensor);
    unflatten(flat, copy_.gradients());
    optimizer_->step(rate_);
    copy_.clear_gradients();
  }
  Copy& copy() { return copy_; }

 private:
  Copy copy_;
  const std::unique_ptr<optim::TorchOptimizer> optimizer_;
  const double rate_;
};

/// Of these batches, dealt out to so many workers.
at::Tensor dealt_out(Copy& copy, const std::vector<Batch>& batches, int workers) {
  std::vector<at::Tensor> gradients;
  std::vector<double> samples;
  const int each = parts / workers;
  for (int i = 0; i < workers; ++i) {
    const auto mine = copy.concatenate({batches.begin() + i * each, batches.begin() + (i + 1) * each});
    gradients.push_back(copy.flat_gradient(mine));
    samples.push_back(static_cast<double>(mine.samples));
  }
  return weighted_mean(gradients, samples);
}

/// That of the training or, so that there is something to see where it has none, one that most gradients exceed.
double bound_for(const Training& training, std::vector<double> lengths) {
  if (training.largest_gradient > 0 || lengths.empty()) return training.largest_gradient;
  const auto middle = lengths.begin() + static_cast<ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  return *middle / 2;
}

at::Tensor cut_to(double bound, const at::Tensor& gradient) {
  const double length = length_of(gradient);
  return length > bound ? gradient.mul(bound / length) : gradient;
}

}  // namespace

at::Tensor weighted_mean(const std::vector<at::Tensor>& tensors, const std::vector<double>& samples) {
  double total = 0;
  for (const double count : samples) total += count;
  if (tensors.size() == 1 || total <= 0) return tensors.front();
  auto sum = tensors.front().mul(samples.front() / total);
  for (size_t i = 1; i < tensors.size(); ++i) sum.add_(tensors[i], samples[i] / total);
  return sum;
}

Finding check_aggregation(const Materials& all) {
  const auto found = first_round(all);
  return finding("C1", "what the workers had applied is together that of one process",
                 relative_distance(found.of_all, found.alone), all.sum_tolerance(),
                 "relative, with " + found.sizes + " samples; cosine " + number(cosine(found.of_all, found.alone)));
}

Finding check_one_step(const Materials& all) {
  const auto found = first_round(all);
  Student together(all.training, all.options), alone(all.training, all.options);
  together.step(found.of_all);
  alone.step(found.alone);
  const double apart = largest_difference(together.copy().values(), alone.copy().values());
  const char* claim = "and so is the step that is made of them";
  const char* note = "largest difference of a parameter";
  // Where a gradient is nearly zero, its sign is noise in single precision, and Adam's first step is its sign.
  if (all.single()) return {"C2", claim, apart, 0, Outcome::Reported, note};
  return finding("C2", claim, apart, 1e-12, note);
}

Finding check_any_number(const Materials& all) {
  const auto after_rounds = [&](int workers) {
    Student student(all.training, all.options), first(all.training, all.options);
    for (int round = 0; round < rounds; ++round) {
      std::vector<Batch> batches;
      for (int i = 0; i < parts; ++i) {
        const auto sequence = static_cast<uint64_t>(all.options.rounds + 2 + round * parts + i);
        batches.push_back(first.copy().batch(0, sequence));
      }
      student.step(dealt_out(student.copy(), batches, workers));
      first.step(dealt_out(first.copy(), batches, 1));
    }
    return student.copy().values();
  };
  const auto one = after_rounds(1);
  double worst = 0;
  for (const int workers : {2, 4, 8}) worst = worse(worst, relative_distance(after_rounds(workers), one));
  const char* claim = "the number of workers makes no difference";
  const char* note = "1, 2, 4, 8 workers on the same samples, 5 rounds, relative";
  if (all.single()) return {"C3", claim, worst, 0, Outcome::Reported, note};
  return finding("C3", claim, worst, 1e-9, note);
}

Finding check_cutting(const Materials& all) {
  std::map<uint64_t, std::vector<const Sent*>> rounds_sent;
  std::vector<double> lengths;
  for (const auto& sent : all.evidence.sent) {
    if (!sent.computed.defined()) continue;
    const double length = length_of(sent.computed);
    if (!std::isfinite(length)) continue;
    rounds_sent[sent.sequence].push_back(&sent);
    lengths.push_back(length);
  }
  const double bound = bound_for(all.training, lengths);
  double worst = 0;
  for (const auto& [sequence, round] : rounds_sent) {
    std::vector<at::Tensor> whole, cut;
    std::vector<double> samples;
    for (const auto* sent : round) {
      whole.push_back(sent->computed);
      cut.push_back(cut_to(bound, sent->computed));
      samples.push_back(static_cast<double>(sent->samples));
    }
    const auto cut_last = cut_to(bound, weighted_mean(whole, samples));
    worst = worse(worst, relative_distance(weighted_mean(cut, samples), cut_last));
  }
  const auto longer = std::count_if(lengths.begin(), lengths.end(), [&](double length) { return length > bound; });
  return {"C4",
          "whether gradients are cut before their mean is taken or after makes no difference",
          worst,
          0,
          Outcome::Reported,
          "relative, worst of " + std::to_string(rounds_sent.size()) + " rounds; " + std::to_string(longer) + " of " +
              std::to_string(lengths.size()) + " gradients are longer than " + number(bound) +
              (all.training.largest_gradient > 0 ? "" : ", half of what is usual")};
}

}  // namespace farad::audit
