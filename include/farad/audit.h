#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/GradMode.h>
#include <farad/shared.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Does a training by several processes apply the right gradients, each once, and which are they the gradients of? The
/// audit runs it in processes of its own on a farad::shared::Model, writes down what each worker computed and what the
/// optimizer was given, and compares that with one process. docs/design/audit.md says what each check shows.
namespace farad::audit {

struct Options {
  int workers = 2;
  int rounds = 25;        ///< how many updates each worker makes
  int average_every = 5;  ///< Averaged: after how many of them the copies are averaged
  shared::Policy policy = shared::Policy::Locked;
  c10::ScalarType dtype = c10::ScalarType::Double;  ///< Float or Double; section A always takes Double
  uint64_t seed = 1;
  std::string inject;      ///< a defect to plant, which has to be found: see faults()
  double most_lost = 0.01; /**< Hogwild: which part of the element updates may be lost, on the mean */
  /// Until the processes of one part have to be done.
  std::chrono::milliseconds patience{30'000};
};

/// What one update is computed from.
struct Batch {
  std::vector<at::Tensor> tensors;
  int64_t samples = 0;  ///< its loss is the mean over so many
};

/// One copy of the model, and what a worker does with it. Each process makes its own.
struct Learner {
  /// Parameters and buffers, the same values in every copy. See learner() for how to come by them.
  std::vector<farad::detail::NamedTensor> tensors;
  /// Where the moving average of the model is wanted before gradients() is called, in the order of `tensors`; empty if
  /// it is not.
  std::vector<farad::detail::NamedTensor> average;
  /// The batch of that update of that worker. It may depend on the values that the copy has now, and on nothing else
  /// but the seed: the audit asks for it again, in another process.
  std::function<Batch(int worker, uint64_t sequence)> batch;
  /// Adds the gradients of the mean loss to those that the parameters have, as backward() does.
  std::function<void(const Batch&)> gradients;
  /// The mean loss; for finite differences. May be empty.
  std::function<double(const Batch&)> loss;
  /// The same gradients computed in another way, of those parameters that require one; see reference(). May be empty.
  std::function<std::vector<at::Tensor>(const Batch&)> reference;
  /// One batch with the samples of all. When empty, tensors are concatenated along their first dimension.
  std::function<Batch(const std::vector<Batch>&)> concatenate;
};

/// A copy whose loss is a function: `loss(module, batch)` gives the mean over the samples, as a scalar tensor.
template <class Module, class Loss>
Learner learner(Module module, Loss loss, std::function<Batch(int worker, uint64_t sequence)> batch) {
  Learner made;
  made.tensors = farad::detail::tensors_of(module);
  made.batch = std::move(batch);
  made.gradients = [module, loss](const Batch& one) mutable { loss(module, one).backward(); };
  made.loss = [module, loss](const Batch& one) mutable {
    const c10::NoGradGuard no_grad;
    return loss(module, one).template item<double>();
  };
  return made;
}

/// What the gradients are compared with: `fn(batch)` gives those that one process computes by an independent path, for
/// the values that the learner has now.
inline void reference(Learner& learner, std::function<std::vector<at::Tensor>(const Batch&)> fn) {
  learner.reference = std::move(fn);
}
/// The same within Training::make, of the learner that is being made there; elsewhere it throws.
void reference(std::function<std::vector<at::Tensor>(const Batch&)> fn);
/// The same for a whole program, which calls it once before it is audited: `fn(parameters, batch)` gives the gradients
/// of those parameters, in their order, for the values that they have. It is that of every learner that has none of its
/// own and is made on this thread from then on; an empty one takes it back.
void reference(std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& parameters, const Batch&)> fn);

/// A gradient on its way from the worker that computed it.
struct Delivery {
  shared::Model& model;
  const std::vector<at::Tensor>& parameters;  ///< as they lie in shared memory
  const std::vector<at::Tensor>& gradients;   ///< of those, the worker's own
  int64_t samples = 0;
  int worker = 0;
  int workers = 0;
};

/// A gradient as its worker computed it.
struct Sent {
  int worker = 0;
  uint64_t sequence = 0;
  uint64_t version_read = 0;  ///< of the model, when the worker pulled it
  uint64_t average_read = 0;  ///< of the moving average, likewise
  int64_t samples = 0;
  uint64_t batch = 0;     ///< hash of what it was computed from
  uint64_t gradient = 0;  ///< hash
  at::Tensor values;      ///< that the worker had then, flat; undefined unless this one is in the sample
  at::Tensor average;     ///< likewise
  at::Tensor computed;    ///< likewise: the gradient
};

/// What an update that was applied was made of.
struct Part {
  int worker = 0;
  uint64_t sequence = 0;  ///< which of that worker's it is
  double samples = 1;     ///< its weight
};

/// A gradient as the optimizer consumed it.
struct Applied {
  std::vector<Part> parts;  ///< one, unless the policy brings gradients together
  uint64_t version = 0;     ///< what the model became by it; Averaged: of the last average before it
  uint64_t gradient = 0;    ///< hash
  bool finite = true;
  at::Tensor values;  ///< of the gradient, flat; undefined unless this one is in the sample
};

/// What was recorded, for checks to look at.
struct Evidence {
  std::vector<Sent> sent;           ///< by worker, then sequence
  std::vector<Applied> applied;     ///< by version
  std::vector<at::Tensor> replayed; /**< flat values of the parameters at each version when one process applies the same
                                         updates in the same order; undefined where there was no room to keep it */
  at::Tensor first, last;           ///< flat values before and after

  const Sent* find_sent(int worker, uint64_t sequence) const;
};

enum class Outcome { Passed, Failed, Reported, Skipped };

struct Finding {
  std::string check;  ///< "B2"
  std::string claim;  ///< what is so if it passed
  double value = 0;
  double tolerance = 0;
  Outcome outcome = Outcome::Passed;
  std::string note = {};
};

/// Passed if the value is no greater than the tolerance; a value that is no number never is.
Finding finding(std::string check, std::string claim, double value, double tolerance, std::string note = {});
/// The greater one of two distances; no number if one of them is none, which std::max would drop, so that a check over
/// many fails for one that could not be computed.
double worse(double a, double b);

using Check = std::function<Finding(const Evidence&, const Options&)>;

/// A defect that can be planted.
struct Fault {
  std::string name;
  std::string caught_by;  ///< the checks of which one has to fail, "D2/D3"
  std::string what;
  int least_workers = 1;                      ///< with fewer it is no defect
  std::vector<shared::Policy> policies = {};  ///< under which it can be planted; empty = under each
};

/// What is audited.
struct Training {
  template <class OptimizerOptions>
  Training(std::string name, std::function<Learner(const Options&)> make, const OptimizerOptions& optimizer)
      : name(std::move(name)), make(std::move(make)), optimizer(farad::detail::settings_of(optimizer)) {}

  std::string name;
  /// A copy of the model in the type that the options name, always with the same values for the same seed. If the
  /// options name one of this training's own faults, then with that.
  std::function<Learner(const Options&)> make;
  farad::detail::OptimizerSettings optimizer;
  /// How a worker's gradient comes to the parameters; model.step() if empty. What goes around the model is not seen to
  /// have been applied.
  std::function<void(const Delivery&)> deliver;
  double moving_average = 0;  ///< how much of it stays at each update; 0: there is none
  /// What workers cut longer gradients to; 0: they do not. The audit's gradients are whole, else their mean would not
  /// be that of one process; it tells what cutting them would change.
  double largest_gradient = 0;
  std::vector<Check> checks;  ///< of its own, beside those that hold for every training
  std::vector<Fault> faults;  ///< of its own
};

/// The strongest that holds. Each but the last is a training that does what its policy promises.
enum class Verdict {
  Exact,         ///< to the bit what one process computes
  Equivalent,    ///< what one process computes, but for the order of sums
  StaleCorrect,  ///< each update is right for the version that its worker had read
  Lossy,         ///< as before, but for element updates that raced, within the bound
  Broken,        ///< a check failed
};
const char* to_string(Verdict verdict);

struct Report {
  std::string training;
  Options options;
  std::optional<Fault> planted;
  Verdict verdict = Verdict::Broken;
  std::vector<Finding> findings;
  uint64_t updates = 0;
  std::vector<uint64_t> staleness;                         ///< how many updates were so many versions late
  std::vector<std::vector<uint64_t>> staleness_by_worker;  ///< the same of each
  double seconds = 0;

  /// Never where a defect was planted: then the training fails its checks, or, which is worse, the audit has not
  /// noticed.
  bool passed() const { return verdict != Verdict::Broken && !planted; }
  const Finding* find(const std::string& check) const;
  /// The checks that failed, in their order.
  std::vector<std::string> failed() const;
  /// Whether updates were later than N workers of equal speed make them: more than 2 N on the mean, or 10 N at most. No
  /// defect, as a process that is not scheduled for a while does that; but a reason to look at the machine.
  bool unusually_late() const;

  std::string json() const;
  /// For people; its last line is the answer.
  std::string table() const;
};

/// Runs the training in `workers` processes and evaluates every check. Forks: call it before libtorch ran in parallel
/// or a thread was started; later it throws. Beside a GPU libtorch starts threads for its first backward, which this
/// one runs: there, a process audits once. Throws Error too if a process failed or was not done in time, naming which.
Report run(const Training& training, const Options& options = {});

/// The defects that can be planted in any training.
const std::vector<Fault>& faults();

/// Audits the training if this program was started by `farad audit -- program`, and gives the exit code to return:
///
///     if (auto code = farad::audit::requested(training)) return *code;
std::optional<int> requested(const Training& training);

}  // namespace farad::audit
