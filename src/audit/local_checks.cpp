// A: the gradient of one process, in double precision.

#include <algorithm>
#include <cmath>
#include <random>

#include "audit/checks.h"
#include "audit/copy.h"
#include "audit/numbers.h"

namespace farad::audit {
namespace {

constexpr int workers_tried = 3;
constexpr uint64_t batches_tried = 3;  // of each
constexpr int coordinates = 50;
constexpr int batches_covering = 20;

Options in_double(const Options& options) {
  auto wide = options;
  wide.dtype = c10::ScalarType::Double;
  return wide;
}

/// With the values at the beginning and those at the end, if they are such that one can compute with them.
template <class Visit>
void at_both_ends(const Materials& all, Copy& copy, Visit visit) {
  for (const auto& values : {all.replay.values.front(), all.replay.values.back()}) {
    if (!all_finite(values)) continue;
    copy.load(values.to(c10::ScalarType::Double));
    if (copy.wants_average()) copy.load_average(all.replay.averages.back().to(c10::ScalarType::Double));
    visit();
  }
}

/// Relative to the gradient there, or to the size of the whole one where that is tiny.
double slope_error(Copy& copy, const Batch& batch, const at::Tensor& values, const at::Tensor& gradient, int64_t at) {
  const double exact = gradient[at].item<double>();
  const double size = std::max(std::abs(exact), 1e-3 * gradient.abs().max().item<double>());
  double least = std::numeric_limits<double>::infinity();
  for (const double step : {1e-5, 1e-6}) {  // A kink may lie within one of them.
    const auto loss_at = [&](double x) {
      auto moved = values.clone();
      moved[at] = x;
      copy.load(moved);
      return copy.learner().loss(batch);
    };
    const double here = values[at].item<double>();
    const double slope = (loss_at(here + step) - loss_at(here - step)) / (2 * step);
    least = std::min(least, size > 0 ? std::abs(slope - exact) / size : std::abs(slope));
  }
  copy.load(values);
  return least;
}

}  // namespace

Finding check_reference(const Materials& all) {
  const char* claim = "a worker's gradient is that of the reference";
  Copy copy(all.training, in_double(all.options));
  if (!copy.learner().reference) {
    return {"A1", claim, 0, 0, Outcome::Skipped, "no reference: see farad::audit::reference()"};
  }
  double worst = 0;
  int compared = 0;
  at_both_ends(all, copy, [&] {
    for (int worker = 0; worker < workers_tried; ++worker) {
      for (uint64_t sequence = 1; sequence <= batches_tried; ++sequence, ++compared) {
        const auto batch = copy.batch(worker, sequence);
        worst = worse(worst, relative_distance(copy.flat_gradient(batch), copy.flat_reference(batch)));
      }
    }
  });
  return finding("A1", claim, worst, 1e-10, "worst of " + std::to_string(compared) + " batches, relative");
}

Finding check_finite_differences(const Materials& all) {
  const char* claim = "it is the slope of the loss";
  Copy copy(all.training, in_double(all.options));
  if (!copy.learner().loss) return {"A2", claim, 0, 0, Outcome::Skipped, "no loss to take differences of"};
  const auto batch = copy.batch(0, 1);
  const auto gradient = copy.flat_gradient(batch);
  const auto values = copy.values();
  std::mt19937_64 random(all.options.seed);
  double worst = 0;
  for (int i = 0; i < coordinates; ++i) {
    const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(copy.elements()));
    worst = worse(worst, slope_error(copy, batch, values, gradient, at));
  }
  return finding("A2", claim, worst, 1e-6, std::to_string(coordinates) + " coordinates, relative");
}

Finding check_coverage(const Materials& all) {
  Copy copy(all.training, in_double(all.options));
  std::vector<bool> reached(copy.trained().size());
  at_both_ends(all, copy, [&] {
    for (uint64_t sequence = 1; sequence <= batches_covering; ++sequence) {
      copy.clear_gradients();
      copy.backward(copy.batch(0, sequence));
      const auto gradients = copy.gradients();
      for (size_t i = 0; i < gradients.size(); ++i) {
        if (gradients[i].defined() && length_of(gradients[i]) > 0) reached[i] = true;
      }
    }
  });
  std::string missing;
  for (size_t i = 0; i < reached.size(); ++i) {
    if (!reached[i]) missing += (missing.empty() ? "never reached: " : ", ") + copy.names()[i];
  }
  return finding("A5", "it reaches every parameter",
                 static_cast<double>(std::count(reached.begin(), reached.end(), false)), 0, missing);
}

}  // namespace farad::audit
