// C: the gradient of several workers against that of one process on all their samples.

#include "audit/aggregation.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
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
  at::Tensor of_all;  ///< what the workers' first gradients make
  at::Tensor alone;   ///< what one process computes
  std::string sizes;
};

Together first_round(const Materials& all) {
  Copy copy(all.training, all.options);
  copy.load(all.evidence.first);
  if (copy.wants_average()) copy.load_average(all.evidence.first);
  std::vector<at::Tensor> gradients;
  std::vector<int64_t> samples;
  std::vector<Batch> batches;
  Together found;
  for (int worker = 0; worker < all.options.workers; ++worker) {
    gradients.push_back(all.board.first_gradient(worker));
    samples.push_back(all.board.sent(worker, 1).samples);
    batches.push_back(copy.batch(worker, 1));
    found.sizes += (worker == 0 ? "" : ", ") + std::to_string(samples.back());
  }
  // Where the model itself brings them together, it is what the optimizer consumed.
  const auto& applied = all.evidence.applied;
  const bool by_the_model =
      all.options.policy == shared::Policy::AllReduced && !applied.empty() && applied[0].values.defined();
  found.of_all = by_the_model ? applied[0].values : aggregate(gradients, samples, all.options);
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
at::Tensor dealt_out(Copy& copy, const std::vector<Batch>& batches, int workers, const Options& options) {
  std::vector<at::Tensor> gradients;
  std::vector<int64_t> samples;
  const int each = parts / workers;
  for (int i = 0; i < workers; ++i) {
    const auto mine = copy.concatenate({batches.begin() + i * each, batches.begin() + (i + 1) * each});
    gradients.push_back(copy.flat_gradient(mine));
    samples.push_back(mine.samples);
  }
  auto clean = options;
  clean.inject.clear();  // The first round shows what a defect makes of it.
  return aggregate(gradients, samples, clean);
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

at::Tensor aggregate(const std::vector<at::Tensor>& gradients, const std::vector<int64_t>& samples,
                     const Options& options) {
  const size_t counted = gradients.size() - (options.inject == "drop-worker" ? 1 : 0);
  auto sum = at::zeros_like(gradients.front());
  int64_t weights = 0;
  for (size_t i = 0; i < counted; ++i) {
    const int64_t weight = options.inject == "divide-by-N" ? 1 : samples[i];
    sum.add_(gradients[i], static_cast<double>(weight));
    weights += weight;
  }
  return options.inject == "no-divide" || weights == 0 ? sum : sum.div_(static_cast<double>(weights));
}

Finding check_aggregation(const Materials& all) {
  const auto found = first_round(all);
  return finding("C1", "the workers' gradients together are that of one process",
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
      student.step(dealt_out(student.copy(), batches, workers, all.options));
      first.step(dealt_out(first.copy(), batches, 1, all.options));
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

}  // namespace farad::audit
