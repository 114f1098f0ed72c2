#include "audit/making.h"

#include <farad/error.h>

#include <utility>
#include <vector>

namespace farad::audit {
namespace {

using OfLearner = std::function<std::vector<at::Tensor>(const Batch&)>;
using OfProgram = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&, const Batch&)>;

/// What this thread is at: who registers a reference does not say of what.
struct Registered {
  OfProgram of_program;
  OfLearner* of_learner = nullptr;  // where that of the one that is being made goes
};
thread_local Registered registered;

/// From its beginning to its end a learner is being made.
class Making {
 public:
  explicit Making(OfLearner& reference) : before_(std::exchange(registered.of_learner, &reference)) {}
  ~Making() { registered.of_learner = before_; }
  Making(const Making&) = delete;

 private:
  OfLearner* const before_;
};

}  // namespace

void reference(OfLearner fn) {
  if (!registered.of_learner) {
    throw Error(
        "[audit] reference(fn) was called where no learner is being made: call it within Training::make, name the "
        "learner, or give it an fn that takes the parameters too");
  }
  *registered.of_learner = std::move(fn);
}

void reference(OfProgram fn) { registered.of_program = std::move(fn); }

Learner make_learner(const Training& training, const Options& options) {
  OfLearner given;
  auto learner = [&] {
    const Making making(given);
    return training.make(options);
  }();
  if (!learner.reference) learner.reference = std::move(given);
  if (!learner.reference && registered.of_program) {
    std::vector<at::Tensor> parameters;
    for (const auto& one : learner.tensors) {
      if (one.trained) parameters.push_back(one.tensor);
    }
    learner.reference = [fn = registered.of_program, parameters](const Batch& batch) { return fn(parameters, batch); };
  }
  return learner;
}

}  // namespace farad::audit
