#include "collectives/doubling.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "collectives/reduction.h"
#include "collectives/steps.h"

namespace farad::collectives {
namespace {

using at::Tensor;

class Doubling {
 public:
  Doubling(Steps& steps, const Tensor& input, Op op)
      : steps_(steps), op_(op), inputs_(at::empty({steps.members(), input.numel()}, input.options())) {
    inputs_[0].copy_(flattened(input));
  }

  Tensor run() {
    bool gradient = false;
    int round = 0;
    for (int distance = 1; distance < steps_.members(); distance *= 2) {
      begun_ = distance;
      const int count = std::min(distance, steps_.members() - distance), from = after(distance);
      // All are concerned in the first: one that has called something else may wait there for everybody.
      auto meeting = steps_.begin(number_of(distance), {before(distance)}, {from},
                                  [&](int) { return inputs_.narrow(0, 0, count); },
                                  {round++, distance == 1 ? steps_.others() : std::vector<int>{}});
      const auto came = steps_.finish(meeting);
      gradient = steps_.somebody_wants_a_gradient(came);
      auto theirs = inputs_.narrow(0, distance, count);
      theirs.copy_(steps_.taken(came, from, theirs));
    }
    if (gradient) return {};
    std::vector<Tensor> in_order;
    for (int member = 0; member < steps_.members(); ++member) {
      in_order.push_back(inputs_[(member + steps_.members() - steps_.rank()) % steps_.members()]);
    }
    return collectives::reduce(in_order, op_);
  }

  /// Those in later rounds wait in vain: for this member, or for one that has called something else and does not know
  /// that there are such rounds. So do those that are through and have heard that somebody wants a gradient.
  void fail(const base::Status& why) {
    steps_.fail(differentiable_meeting, steps_.others(), why);
    for (int distance = 2 * begun_; distance < steps_.members(); distance *= 2) {
      steps_.fail(number_of(distance), steps_.others(), why);
    }
  }

 private:
  static uint64_t number_of(int distance) {
    return distance == 1 ? first_meeting : first_step + static_cast<uint64_t>(distance);
  }
  int after(int distance) const { return (steps_.rank() + distance) % steps_.members(); }
  int before(int distance) const { return (steps_.rank() + steps_.members() - distance) % steps_.members(); }

  Steps& steps_;
  const Op op_;
  Tensor inputs_;  // This member's, then those of the members after it, around.
  int begun_ = 1;  // the distance of the latest round
};

}  // namespace

Reduction reduce_by_doubling(const Ticket& ticket, const Signature& signature, const Tensor& input, Op op) {
  Steps steps(ticket, signature, c10::GradMode::is_enabled() && input.requires_grad());
  const c10::AutoGradMode no_history(false);
  Doubling doubling(steps, input, op);
  try {
    const auto result = doubling.run();
    if (!result.defined()) return {};
    return {Steps::shaped(result, input)};
  } catch (...) {
    doubling.fail(base::status_of(std::current_exception()));
    throw;
  }
}

}  // namespace farad::collectives
